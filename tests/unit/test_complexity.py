"""The table of what complex calls are made of: each line of it is run eagerly, and the ranks are what the size order needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
import torch

from minify.case import Arg, Case, Const, Graph, Op, Ref, Subgraph, op_refs, size, tensor_inputs
from minify.complexity import RULES, WRITE_ONLY, Rule, complexity, out_of_place, rank, rules_of
from minify.interpret import StorageNumbers, describe, run, run_op
from minify.passes.aten_names import FUNCTIONAL_FUNCTIONS, METHODS, RENAMED, TORCH_FUNCTIONS
from minify.passes.idiomatic_calls import SPECIAL, idiomatic
from minify.passes.simplify_ops import SIMPLIFY_OPS, WITHOUT
from tests.cases import build, chain, given, op

F = "torch.nn.functional."
X, Y, V, W, B, P, Q, T = map(Ref, "xyvwbpqt")
IMAGE, KERNEL = Ref("image"), Ref("kernel")
VALUES = {
    "x": torch.linspace(0.1, 0.8, 16).reshape(4, 4),
    "y": torch.linspace(0.9, 0.2, 16).reshape(4, 4),
    "v": torch.linspace(0.1, 1.0, 4),
    "w": torch.eye(4) + 0.5,
    "b": torch.ones(4),
    "p": torch.linspace(-1.0, 1.0, 48).reshape(3, 4, 4),
    "q": torch.linspace(-1.0, 1.0, 48).reshape(4, 4, 3).permute(2, 0, 1),
    "t": torch.arange(4),
    "rows": torch.tensor([[0, 1], [2, 3]]),
    "image": torch.linspace(-1.0, 1.0, 288).reshape(2, 4, 6, 6),
    "picture": torch.linspace(1.0, -1.0, 288).reshape(2, 4, 6, 6),
    "kernel": torch.ones(4, 4, 3, 3),
    "three": torch.ones(3),
    "twelve": torch.ones(12),
    "wide": torch.ones(12, 4),
}


def call(target: str, *args: Arg, **kwargs: Arg) -> Op:
    return Op("o", target, args, tuple(kwargs.items()))


CALLS = (
    call(F + "layer_norm", X, (4,), B, B, 1e-5),
    call("torch.native_layer_norm", X, (4,), B, B, 1e-5),
    call("torch.native_group_norm", IMAGE, B, B, 2, 4, 36, 2, 1e-5),
    call("torch.ops.aten.native_layer_norm_backward.default", X, Y, (4,), V, V, B, B, (True, False, False)),
    call("torch.rms_norm", X, (4,), B),
    call(F + "group_norm", IMAGE, 2, B, B),
    call(F + "instance_norm", IMAGE, B, B, B, B),
    call(F + "batch_norm", IMAGE, B, B, B, B, True),
    call(F + "normalize", X, dim=-1),
    call(F + "softmax", X, dim=-1),
    call(".softmax", X, -1),
    call("torch.ops.aten._softmax.default", X, -1, False),
    call("torch.softmax", input=X, dim=-1),
    call("torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default", Ref("image"), Ref("picture"), Ref("image")),
    call("torch.ops.aten._softmax_backward_data.default", X, Y, -1, Const("torch.float32")),
    call("torch.ops.aten._log_softmax_backward_data.default", X, Y, -1, Const("torch.float32")),
    call("torch.ops.aten.gelu_backward.default", X, Y),
    call("torch.ops.aten.silu_backward.default", X, Y),
    call("torch.ops.aten.tanh_backward.default", X, Y),
    call(F + "softmin", X, dim=-1),
    call("torch.log_softmax", X, -1),
    call("torch.logsumexp", X, -1, True),
    call("torch.logcumsumexp", X, 0),
    call(F + "scaled_dot_product_attention", P, P, P, X, 0.0, False),
    call(F + "scaled_dot_product_attention", P, Q, P),
    call(
        F + "multi_head_attention_forward",
        P, P, P, 4, 2, Ref("wide"), Ref("twelve"), None, None, False, 0.0, W, B,
    ),
    call(F + "linear", X, W, B),
    call("torch.bilinear", X, X, P, Ref("three")),
    call("torch.conv2d", IMAGE, KERNEL, B, (1, 1)),
    call("torch.ops.aten.convolution.default", IMAGE, KERNEL, B, (1, 1), (0, 0), (1, 1), False, (0, 0), 1),
    call("torch.addmm", V, X, W),
    call("torch.addmv", V, X, V),
    call("torch.addr", X, V, V),
    call("torch.baddbmm", P, P, P),
    call("torch.addcmul", X, X, Y),
    call("torch.addcdiv", X, X, Y),
    call("torch.lerp", X, Y, 0.5),
    call("torch.einsum", "ij,jk->ik", X, Y),
    call("torch.tensordot", X, Y, 1),
    call("torch.cdist", X, Y),
    call("torch.gru_cell", X, X, Ref("wide"), Ref("wide"), Ref("twelve"), Ref("twelve")),
    call(F + "embedding_bag", Ref("rows"), W),
    *(call(F + name, X) for name in ("gelu", "silu", "glu", "mish", "softplus", "logsigmoid", "elu", "selu", "celu")),
    *(call(F + name, X) for name in ("leaky_relu", "rrelu", "relu6", "hardswish", "hardsigmoid", "tanhshrink")),
    call("torch.prelu", X, V),
    call(F + "cross_entropy", X, T, B),
    call(F + "nll_loss", X, T, B),
    call(F + "binary_cross_entropy", X, Y, X),
    call(F + "binary_cross_entropy_with_logits", X, Y, X, pos_weight=B),
    *(call(F + name, X, Y) for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "poisson_nll_loss")),
    call(F + "kl_div", X, Y, reduction="sum"),
    call(F + "cosine_embedding_loss", X, Y, B),
    call("torch.cosine_similarity", X, Y),
    call(F + "triplet_margin_loss", X, Y, X),
    call("torch.pairwise_distance", X, Y),
    call("torch.dist", X, Y),
    call(F + "margin_ranking_loss", X, Y, X),
    call("torch.var", X, -1, keepdim=True),
    call("torch.ops.aten.var.correction", X, (1,), correction=0),
    call(".std", X, -1, False, True),
    call("torch.std", X),
    call("torch.var_mean", X, -1),
    call("torch.std_mean", X, dim=-1, correction=0),
    call("torch.norm", X, dim=-1),
    call("torch.linalg.vector_norm", X, 2, -1, True),
    call("torch.nansum", X, 0),
    call("torch.nanmean", X, 0, True),
    call("torch.max", X, 1, True),
    call(".min", X, dim=1),
    call("torch.aminmax", X, dim=1),
    call(F + "adaptive_avg_pool2d", IMAGE, 1),
)  # fmt: skip


def cases_of(made: Op) -> Iterator[tuple[Rule, Case]]:
    """The call by itself for each rule that it has, returning what the rule is about; values are described as a run would."""
    numbers = StorageNumbers()
    inputs = [
        dataclasses.replace(given(name), meta=describe(VALUES[name], numbers, name))
        for name in dict.fromkeys(op_refs(made))
    ]
    whole = dataclasses.replace(made, meta=describe(run_op(made, VALUES), numbers, made.name))
    for rule in rules_of(made.target):
        item = op("item", "operator.getitem", Ref("o"), rule.item)
        yield (
            rule,
            build(inputs, [whole] if rule.item is None else [whole, item], ["o" if rule.item is None else "item"]),
        )


def run_case(case: Case) -> None:
    """Raises whatever torch does where a call of `case` makes no sense."""
    values = [
        torch.as_strided(VALUES[item.name].clone(), item.meta.shape, item.meta.stride) for item in tensor_inputs(case)
    ]
    run(case.graph, values)


RULED = [(f"{made.target} {place}", rule, case) for place, made in enumerate(CALLS) for rule, case in cases_of(made)]


@pytest.mark.parametrize("case", [row[2] for row in RULED], ids=[row[0] for row in RULED])
def test_whatever_simpler_takes_the_place_of_a_call_runs(case: Case) -> None:
    run_case(case)
    sites = SIMPLIFY_OPS.find(case)
    for site in sites:
        simpler = SIMPLIFY_OPS.rewrite(case, (site,))
        run_case(simpler)
        assert size(simpler) < size(case)


def test_each_line_of_the_table_is_among_those_that_are_run() -> None:
    seen = {(rule.names, rule.item, words) for _, rule, case in RULED for _, words in SIMPLIFY_OPS.find(case)}
    for rule in RULES:
        for words in (*(piece.text for piece in rule.pieces), *(WITHOUT + ", ".join(names) for names in rule.optional)):
            assert (rule.names, rule.item, words) in seen


def test_no_call_has_more_pieces_than_are_worth_asking() -> None:
    assert max(len(rule.pieces) for rule in RULES) <= 3


def test_a_piece_ranks_below_its_call() -> None:
    for rule in RULES:
        for name in rule.names:
            assert all(rank(piece.call.target) < rank(f"torch.{name}") for piece in rule.pieces)


RANKS = [
    ("torch.relu", 0),
    ("operator.add", 0),
    ("a call that nobody knows", 0),
    ("torch.ops.mine.softmax.default", 0),
    ("torch.softmax", 1),
    (F + "softmax", 1),
    (".softmax", 1),
    ("torch.ops.aten._softmax.default", 1),
    (F + "layer_norm", 2),
    (F + "multi_head_attention_forward", 3),
    (".add_", 1),
    ("operator.iadd", 1),
    ("torch.ops.aten.addmm_.default", 2),
    (".copy_", 0),
    ("operator.setitem", 0),
]


@pytest.mark.parametrize(("target", "expected"), RANKS, ids=[row[0] for row in RANKS])
def test_the_rank_of_a_call_is_the_steps_from_it(target: str, expected: int) -> None:
    assert rank(target) == expected


def test_calls_in_the_body_of_another_count() -> None:
    body = Subgraph(Graph(("t",), (op("s", "torch.softmax", Ref("t"), 0),), (Ref("s"),)))
    assert complexity(chain("x", (".exp_",), ("torch.cond", body, body)).graph) == 3


def test_a_call_written_as_users_do_ranks_no_higher_than_the_aten_call() -> None:
    for name in (*TORCH_FUNCTIONS, *FUNCTIONAL_FUNCTIONS, *METHODS, *RENAMED, *SPECIAL):
        aten = Op("o", f"torch.ops.aten.{name}.default", (X, (1, 1), False))
        plain = idiomatic(aten)
        assert plain is None or rank(plain.target) <= rank(aten.target), name


TWINS = [
    (".add_", ".add"),
    ("torch.relu_", "torch.relu"),
    (F + "elu_", F + "elu"),
    ("torch.ops.aten.add_.Tensor", "torch.ops.aten.add.Tensor"),
    ("operator.iand", "operator.and_"),
    (".__imul__", "operator.mul"),
    ("operator.and_", ""),
    ("operator.index", ""),
    (".__setitem__", ""),
    (".__and__", ""),
    (".add", ""),
    (".zero_", ""),
    ("torch.ops.mine.add_.default", ""),
]


@pytest.mark.parametrize(("target", "expected"), TWINS, ids=[row[0] for row in TWINS])
def test_what_writes_has_a_twin_that_does_not(target: str, expected: str) -> None:
    assert out_of_place(target) == expected


def test_every_method_that_writes_has_a_twin_or_is_known_to_have_none() -> None:
    for owner, dotted in ((torch.Tensor, ""), (torch, "torch"), (torch.nn.functional, "torch.nn.functional")):
        for name in (name for name in dir(owner) if name.endswith("_") and not name.startswith("_")):
            assert name in WRITE_ONLY or callable(
                getattr(owner, out_of_place(f"{dotted}.{name}").rpartition(".")[2])
            ), name
