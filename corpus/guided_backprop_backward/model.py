"""Guided back-propagation saliency: the forward pass agrees, the gradient of the input doesn't."""
import torch
import torch._inductor.config as inductor_config
from torch import nn
from torch.nn import functional as F

inductor_config.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"
inductor_config.triton.inject_relu_bug_TESTING_ONLY = "accuracy"


class GuidedGate(torch.autograd.Function):
    """A rectifier that lets only positive gradients through."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0.0)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return torch.relu(grad) * (x > 0)


class SaliencyNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 3, padding=1)
        self.conv2 = nn.Conv2d(6, 8, 3, stride=2, padding=1)
        self.fc = nn.Linear(8, 5)

    def forward(self, image):
        y = GuidedGate.apply(self.conv1(image))
        y = F.avg_pool2d(y, 2)
        y = F.elu(self.conv2(y))
        scores = self.fc(y.mean(dim=(2, 3)))
        return torch.log_softmax(scores, dim=-1)


torch.manual_seed(0)
model = SaliencyNet()
inputs = (torch.randn(2, 3, 12, 12, requires_grad=True),)


def saliency(net, image):
    image = image.detach().clone().requires_grad_()
    scores = net(image)
    scores[:, 2].sum().backward()
    return scores.detach(), image.grad


if __name__ == "__main__":
    expected_scores, expected = saliency(model, *inputs)
    got_scores, got = saliency(torch.compile(model), *inputs)
    torch.testing.assert_close(got_scores, expected_scores, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-4)
    print("eager and compiled agree")
