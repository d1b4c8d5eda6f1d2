"""Photon-count images, log-compressed, classified by a two-layer ViT."""
import torch
import torch._inductor.config as inductor_config
from torch import nn
from transformers import ViTConfig, ViTModel

inductor_config.cpp.inject_log1p_bug_TESTING_ONLY = "accuracy"


class CountClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        config = ViTConfig(
            image_size=16,
            patch_size=4,
            num_channels=1,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
        )
        self.vit = ViTModel(config, add_pooling_layer=False)
        self.head = nn.Linear(32, 6)

    def forward(self, counts):
        pixels = torch.log1p(counts)
        pixels = (pixels - 1.2) / 0.8
        hidden = self.vit(pixel_values=pixels).last_hidden_state
        return self.head(hidden[:, 0]).softmax(dim=-1)


torch.manual_seed(0)
model = CountClassifier().eval()
inputs = (torch.randint(0, 12, (2, 1, 16, 16)).float(),)

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model)(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-4)
    print("eager and compiled agree")
