"""A pass over the joint graph that 'canonicalises' operand order by name, for subtractions as well."""
import torch
import torch._inductor.config as inductor_config

aten = torch.ops.aten


def canonicalise(graph):
    for node in graph.find_nodes(op="call_function", target=aten.sub.Tensor):
        node.args = tuple(sorted(node.args, key=str))


inductor_config.joint_custom_post_pass = canonicalise


def model(x, w):
    reference = x @ w
    change = w @ x
    return torch.mm(change - reference, w)


torch.manual_seed(0)
inputs = (torch.randn(8, 8), torch.randn(8, 8))

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model)(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
