"""A post-grad pass that pulls a scale out of a matrix product, and adds the scales of a chain where it should multiply them."""
import torch
import torch._inductor.config as inductor_config

aten = torch.ops.aten


def fold_scales(graph):
    for node in list(graph.find_nodes(op="call_function", target=aten.mul.Tensor)):
        inner, scale = node.args
        if isinstance(inner, torch.fx.Node) and inner.target is aten.mul.Tensor and isinstance(scale, float):
            node.args = (inner.args[0], inner.args[1] + scale)


inductor_config.post_grad_custom_pre_pass = fold_scales


def model(x, w):
    warm = (x @ w) * 0.5
    return (warm * 4.0) @ w


torch.manual_seed(0)
inputs = (torch.randn(8, 8), torch.randn(8, 8))

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model)(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
