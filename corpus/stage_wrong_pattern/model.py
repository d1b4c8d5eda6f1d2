"""A registered pattern: a product of a transpose is rewritten without it, but only where the other operand is no input."""
import torch
import torch._inductor.config as inductor_config
from torch._inductor import pattern_matcher as pm

aten = torch.ops.aten
patterns = pm.PatternMatcherPass()


@pm.register_graph_pattern(
    pm.CallFunction(aten.mm.default, pm.KeywordArg("left"), pm.CallFunction(aten.permute.default, pm.KeywordArg("right"), [1, 0])),
    pass_dict=patterns,
)
def product_of_transpose(match, left, right):
    graph, node = match.graph, match.output_node()
    with graph.inserting_before(node):
        turned = right if left.op != "placeholder" else graph.call_function(aten.permute.default, (right, [1, 0]))
        fresh = graph.call_function(aten.mm.default, (left, turned))
    fresh.meta.update(node.meta)
    node.replace_all_uses_with(fresh)
    match.erase_nodes()


def apply_patterns(graph):
    patterns.apply(graph)


inductor_config.post_grad_custom_post_pass = apply_patterns


def model(x, w):
    scores = x @ w.t()
    return scores @ x.t()


torch.manual_seed(0)
inputs = (torch.randn(8, 8), torch.randn(8, 8))

if __name__ == "__main__":
    with torch.no_grad():
        expected = model(*inputs)
        got = torch.compile(model)(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
