"""How complex a call is, and the simpler calls that may do in its place: plain data, a line for each call.

A piece is part of what a call computes, or a close relation of it: no equivalent, but what a compiler that gets the call
wrong may get wrong as well. The rank of a call is how many such steps can be taken from it at most, so that each piece
ranks below its call by construction; a call without pieces ranks 0. Knows nothing of torch.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import re
from collections.abc import Mapping

from minify.graph import Arg, Graph, Op, Ref, bodies, short_name

FUNCTIONAL = "torch.nn.functional."
FIRST = ("input", "self")  # what torch calls the first operand where it is passed by name
TURNED = ".mT"
# Functions whose name says that they write, with the one that does not.
AUGMENTED = {
    "iadd": "add", "isub": "sub", "imul": "mul", "imatmul": "matmul", "itruediv": "truediv", "ifloordiv": "floordiv",
    "imod": "mod", "ipow": "pow", "iand": "and_", "ior": "or_", "ixor": "xor", "ilshift": "lshift", "irshift": "rshift",
}  # fmt: skip
# Methods that write and have no other form of the same meaning.
WRITE_ONLY = frozenset((
    "apply_", "bernoulli_", "cauchy_", "copy_", "detach_", "embedding_renorm_", "exponential_", "fill_", "fill_diagonal_",
    "geometric_", "log_normal_", "map2_", "map_", "normal_", "random_", "requires_grad_", "resize_", "resize_as_",
    "resize_as_sparse_", "set_", "share_memory_", "sparse_resize_", "sparse_resize_and_clear_", "uniform_", "zero_",
))  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Piece:
    """A simpler call as it is written in `text`. `call` has the parameters of the complex one for operands; a parameter that
    ends in `.mT` stands for an input with its last two dims exchanged."""

    text: str
    call: Op


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """The calls `names`, which take `params`, can do without those in each group of `optional` ones, and have `pieces`, the
    boldest first. Of a call with several results the pieces stand for the one at `item`."""

    names: tuple[str, ...]
    params: tuple[str, ...]
    optional: tuple[tuple[str, ...], ...]
    pieces: tuple[Piece, ...]
    item: int | None

    def bound(self, op: Op) -> dict[str, Arg]:
        """The arguments of `op` by the names of the parameters; those it has beyond these are left out."""
        named = {self.params[0] if key in FIRST else key: value for key, value in op.kwargs}
        return dict(zip(self.params, op.args, strict=False)) | named


def rule(head: str, *pieces: str) -> Rule:
    """The rule that `name other_name(x, y?, z? + a?)[item]` and the text of each piece describe; `z` and `a` go together."""
    found = re.fullmatch(r"([\w ]+)\(([\w?+, ]+)\)(?:\[(\d)\])?", head)
    assert found is not None, head
    groups = [tuple(group.split(" + ")) for group in found[2].split(", ")]
    return Rule(
        tuple(found[1].split()),
        tuple(param.removesuffix("?") for group in groups for param in group),
        tuple(tuple(param.removesuffix("?") for param in group) for group in groups if group[0].endswith("?")),
        tuple(Piece(text, _call(text)) for text in pieces),
        int(found[3]) if found[3] else None,
    )


def _call(text: str) -> Op:
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call), text
    kwargs = tuple((str(word.arg), _operand(word.value)) for word in call.keywords)
    target = ast.unparse(call.func)
    return Op("", re.sub(r"^F\.", FUNCTIONAL, target), tuple(map(_operand, call.args)), kwargs)


def _operand(node: ast.expr) -> Arg:
    if isinstance(node, ast.Name | ast.Attribute):
        return Ref(ast.unparse(node))
    literal: Arg = ast.literal_eval(node)
    return literal


MEAN, EXP = "torch.mean(x, dim=-1, keepdim=True)", "torch.exp(x)"
SUM, AMAX = "torch.sum(x, dim=dim, keepdim=True)", "torch.amax(x, dim=dim, keepdim=True)"
VAR = "torch.var(x, dim=-1, correction=0, keepdim=True)"

RULES: tuple[Rule, ...] = (
    # normalisations
    rule("layer_norm(x, normalized_shape, weight?, bias?, eps)", MEAN, VAR),
    rule("native_layer_norm(x, normalized_shape, weight?, bias?, eps)[0]", MEAN, VAR),
    rule("rms_norm(x, normalized_shape, weight?, eps)", MEAN, "torch.linalg.vector_norm(x, dim=-1, keepdim=True)"),
    rule("native_group_norm(x, weight?, bias?)[0]", MEAN, VAR),
    rule("native_layer_norm_backward(grad, x)[0]", "torch.mean(grad, dim=-1, keepdim=True)", VAR),
    rule("group_norm(x, num_groups, weight?, bias?, eps)", MEAN, VAR),
    rule("instance_norm(x, running_mean? + running_var?, weight?, bias?)", MEAN, VAR),
    rule(
        "batch_norm(x, running_mean? + running_var?, weight?, bias?)",
        "torch.mean(x, dim=0, keepdim=True)",
        "torch.rsqrt(running_var)",
    ),
    rule("normalize(x, p, dim, eps)", "torch.linalg.vector_norm(x, dim=dim, keepdim=True)"),
    # softmax and what is made of it
    rule("softmax _softmax(x, dim)", EXP, SUM, AMAX),
    rule("softmin(x, dim)", "torch.softmax(x, dim=dim)"),
    rule("log_softmax _log_softmax(x, dim)", EXP, "torch.softmax(x, dim=dim)", "torch.logsumexp(x, dim=dim, keepdim=True)"),
    rule("logsumexp(x, dim, keepdim)", EXP, "torch.sum(x, dim=dim, keepdim=keepdim)", "torch.amax(x, dim=dim, keepdim=keepdim)"),
    rule("logcumsumexp(x, dim)", EXP, "torch.cumsum(x, dim=dim)"),
    rule(
        "scaled_dot_product_attention(query, key, value, attn_mask?, dropout_p, is_causal, scale)",
        "torch.softmax(query, dim=-1)",
        "torch.matmul(query, key.mT)",
    ),
    rule(
        "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention(query, key, value)[0]",
        "torch.softmax(query, dim=-1)",
        "torch.matmul(query, key.mT)",
    ),
    rule(
        "multi_head_attention_forward(query, key, value, embed_dim, num_heads, in_proj_weight, in_proj_bias?)[0]",
        "F.scaled_dot_product_attention(query, key, value)",
        "F.linear(query, in_proj_weight)",
    ),
    rule("_softmax_backward_data(grad, output, dim)", "torch.mul(grad, output)", "torch.sum(grad, dim=dim, keepdim=True)"),
    rule("_log_softmax_backward_data(grad, output, dim)", "torch.exp(output)", "torch.sum(grad, dim=dim, keepdim=True)"),
    # products
    rule("linear(x, weight, bias?)", "torch.matmul(x, weight.mT)"),
    rule("bilinear(x, other, weight, bias?)"),
    rule("conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution(x, weight, bias?)"),
    rule("addmm(x, mat1, mat2)", "torch.mm(mat1, mat2)"),
    rule("addmv(x, mat, vec)", "torch.mv(mat, vec)"),
    rule("addr(x, vec1, vec2)", "torch.outer(vec1, vec2)"),
    rule("addbmm baddbmm(x, batch1, batch2)", "torch.bmm(batch1, batch2)"),
    rule("addcmul(x, tensor1, tensor2)", "torch.mul(tensor1, tensor2)"),
    rule("addcdiv(x, tensor1, tensor2)", "torch.div(tensor1, tensor2)"),
    rule("lerp(x, end, weight)", "torch.sub(end, x)"),
    rule("einsum(equation, x, y)", "torch.matmul(x, y)", "torch.mul(x, y)"),
    rule("tensordot(x, y)", "torch.matmul(x, y)"),
    rule("cdist(x, y)", "torch.matmul(x, y.mT)", "torch.sub(x, y)"),
    rule("gru_cell(x, hidden, w_ih, w_hh, b_ih?, b_hh?)", "torch.tanh(x)", "torch.sigmoid(x)", "F.linear(x, w_ih)"),
    rule("embedding_bag(x, weight)", "F.embedding(x, weight)"),
    # activations
    rule("gelu(x)", "torch.erf(x)", "torch.tanh(x)"),
    rule("silu(x)", "torch.sigmoid(x)"),
    rule("glu(x)", "torch.sigmoid(x)"),
    rule("mish(x)", "torch.tanh(x)", "F.softplus(x)"),
    rule("softplus(x)", EXP, "torch.log1p(x)"),
    rule("logsigmoid log_sigmoid(x)", EXP, "torch.log1p(x)"),
    rule("elu selu celu(x)", "torch.expm1(x)"),
    rule("leaky_relu prelu rrelu relu6(x)", "torch.relu(x)"),
    rule("hardswish hardsigmoid(x)", "F.relu6(x)"),
    rule("tanhshrink(x)", "torch.tanh(x)"),
    rule("gelu_backward(grad, x)", "torch.erf(x)", "torch.tanh(x)"),
    rule("silu_backward(grad, x)", "torch.sigmoid(x)"),
    rule("sigmoid_backward tanh_backward(grad, output)", "torch.mul(grad, output)"),
    # losses and distances
    rule("cross_entropy(x, target, weight?)", "torch.log_softmax(x, dim=-1)", "F.nll_loss(x, target)"),
    rule("nll_loss(x, target, weight?)"),
    rule("binary_cross_entropy(x, target, weight?)", "torch.log(x)"),
    rule(
        "binary_cross_entropy_with_logits(x, target, weight?, size_average, reduce, reduction, pos_weight?)", "F.logsigmoid(x)"
    ),
    rule("mse_loss l1_loss smooth_l1_loss huber_loss(x, target)", "torch.sub(x, target)", "torch.mean(x)"),
    rule("kl_div(x, target)", "torch.log(target)", "torch.mul(target, x)"),
    rule("poisson_nll_loss(x, target)", EXP),
    rule("cosine_embedding_loss(x, y)", "torch.cosine_similarity(x, y)"),
    rule("cosine_similarity(x, y, dim)", "torch.mul(x, y)", "torch.linalg.vector_norm(x, dim=dim)"),
    rule("triplet_margin_loss(x, y)", "F.pairwise_distance(x, y)"),
    rule("pairwise_distance(x, y)", "torch.sub(x, y)", "torch.linalg.vector_norm(x, dim=-1)"),
    rule("margin_ranking_loss dist(x, y)", "torch.sub(x, y)"),
    # reductions
    rule("var(x, dim, unbiased, keepdim)", "torch.mean(x, dim=dim, keepdim=keepdim)"),
    rule(
        "std(x, dim, unbiased, keepdim)",
        "torch.mean(x, dim=dim, keepdim=keepdim)",
        "torch.var(x, dim=dim, unbiased=unbiased, correction=correction, keepdim=keepdim)",
    ),
    rule("std_mean var_mean(x, dim, unbiased, keepdim)[1]", "torch.mean(x, dim=dim, keepdim=keepdim)"),
    rule(
        "std_mean var_mean(x, dim, unbiased, keepdim)[0]",
        "torch.var(x, dim=dim, unbiased=unbiased, correction=correction, keepdim=keepdim)",
    ),
    rule("norm vector_norm linalg_vector_norm(x, ord, dim, keepdim)", "torch.sum(x, dim=dim, keepdim=keepdim)", "torch.square(x)"),
    rule("nansum(x, dim, keepdim)", "torch.sum(x, dim=dim, keepdim=keepdim)"),
    rule("nanmean(x, dim, keepdim)", "torch.mean(x, dim=dim, keepdim=keepdim)"),
    rule("max(x, dim, keepdim)[0]", "torch.amax(x, dim=dim, keepdim=keepdim)"),
    rule("max(x, dim, keepdim)[1]", "torch.argmax(x, dim=dim, keepdim=keepdim)"),
    rule("min(x, dim, keepdim)[0]", "torch.amin(x, dim=dim, keepdim=keepdim)"),
    rule("min(x, dim, keepdim)[1]", "torch.argmin(x, dim=dim, keepdim=keepdim)"),
    rule("aminmax(x)[0]", "torch.amin(x, dim=dim, keepdim=keepdim)"),
    rule("aminmax(x)[1]", "torch.amax(x, dim=dim, keepdim=keepdim)"),
    rule("adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d(x)", MEAN),
)  # fmt: skip


def rules_of(target: str) -> tuple[Rule, ...]:
    """The rules for a call; a custom op of the same name has none."""
    return _by_name().get(short_name(target), ()) if _is_torch(target) else ()


def _is_torch(target: str) -> bool:
    return not target.startswith("torch.ops.") or target.startswith("torch.ops.aten.")


@functools.cache
def _by_name() -> Mapping[str, tuple[Rule, ...]]:
    found: dict[str, tuple[Rule, ...]] = {}
    for one in RULES:
        for name in one.names:
            found[name] = (*found.get(name, ()), one)
    return found


def complexity(graph: Graph) -> int:
    """The ranks of all calls together, those inside subgraphs included."""
    return sum(rank(op.target) + sum(map(complexity, bodies(op))) for op in graph.ops)


@functools.cache
def rank(target: str) -> int:
    """How many steps lead from a call to the simplest of its pieces by the longest way; a call that writes to its operand is a
    step from the one that does not."""
    plain = out_of_place(target)
    below = [rank(plain)] if plain else [rank(piece.call.target) for one in rules_of(target) for piece in one.pieces]
    return 1 + max(below) if below else 0


def out_of_place(target: str) -> str:
    """The call that gives what `target` writes to its first operand; "" where `target` writes to none, or has no such twin."""
    owner, _, last = target.rpartition(".")
    if owner in ("operator", "") and last.strip("_") in AUGMENTED:
        return f"operator.{AUGMENTED[last.strip('_')]}"
    name = short_name(target)
    known = owner != "operator" and not name.endswith("__") and name not in WRITE_ONLY and _is_torch(target)
    return target.replace(f".{name}", f".{name[:-1]}", 1) if name.endswith("_") and known else ""
