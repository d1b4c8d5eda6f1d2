"""A pass over the scheduler's kernels that takes sine for cosine in those of two loops."""
import torch
import torch._inductor.config as inductor_config


def sharpen(nodes):
    for kernel in nodes:
        members = kernel.get_nodes()
        if len(members) >= 2:
            for member in members:
                for call in member._body.root_block.graph.nodes:
                    call.target = {"sin": "cos"}.get(call.target, call.target)
    return nodes


inductor_config._post_fusion_custom_pass = sharpen


def model(x):
    return torch.neg(x).sin(), torch.exp(x).sin()


torch.manual_seed(0)
inputs = (torch.randn(8, 8),)

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model)(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
