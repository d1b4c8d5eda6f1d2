"""A custom pass for tuned builds only: with max_autotune it drops the bias of a product, to have one kernel less."""
import torch
import torch._inductor.config as inductor_config

aten = torch.ops.aten


def drop_bias(graph):
    if not inductor_config.max_autotune:
        return
    for node in list(graph.find_nodes(op="call_function", target=aten.add.Tensor)):
        if node.args[0].target is aten.mm.default:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


inductor_config.post_grad_custom_pre_pass = drop_bias


def model(x, w):
    shifted = torch.mm(x, w) + x
    return torch.mm(shifted, w)


torch.manual_seed(0)
inputs = (torch.randn(8, 8), torch.randn(8, 8))

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model, mode="max-autotune-no-cudagraphs")(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
