"""A custom partitioner built around torch's own: it swaps the operands of a product in each backward graph that it hands on."""
import torch
import torch._inductor.config as inductor_config
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.custom_graph_pass import CustomPartitionerFn


class Reordering(CustomPartitionerFn):
    def __call__(self, gm, joint_inputs, **kwargs):
        forward, backward = min_cut_rematerialization_partition(gm, joint_inputs, **kwargs)
        for node in backward.graph.find_nodes(op="call_function", target=torch.ops.aten.mm.default):
            node.args = node.args[::-1]
        backward.recompile()
        return forward, backward

    def uuid(self):
        return b"reordering"


inductor_config.custom_partitioner_fn = Reordering()


def model(x, w):
    return (x @ w) @ w


torch.manual_seed(0)
inputs = (torch.randn(8, 8, requires_grad=True), torch.randn(8, 8))

if __name__ == "__main__":
    (expected,) = torch.autograd.grad(model(*inputs).sum(), inputs[:1])
    (got,) = torch.autograd.grad(torch.compile(model)(*inputs).sum(), inputs[:1])
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
