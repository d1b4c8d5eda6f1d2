"""Two custom passes: one marks products as symmetric by their shape, the other swaps the operands of what is marked."""
import torch
import torch._inductor.config as inductor_config

mm = torch.ops.aten.mm.default


def mark_symmetric(graph):
    for node in graph.find_nodes(op="call_function", target=mm):
        shape = node.meta["val"].shape
        node.meta["symmetric"] = shape[0] == shape[1]


def reorder_symmetric(graph):
    for node in graph.find_nodes(op="call_function", target=mm):
        if node.meta.get("symmetric"):
            node.args = node.args[::-1]


inductor_config.post_grad_custom_pre_pass = mark_symmetric
inductor_config.post_grad_custom_post_pass = reorder_symmetric


def model(x, w):
    return (x @ w) @ w


torch.manual_seed(0)
inputs = (torch.randn(8, 8), torch.randn(8, 8))

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model)(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
