"""`keep`: any subset of the ops is a candidate, and what was cut comes back as an input with its layout and value."""

from __future__ import annotations

import pytest

from minify.case import (
    Case,
    Derived,
    Input,
    ListArg,
    OpaqueMeta,
    Recorded,
    Ref,
    ScalarInput,
    ScalarMeta,
    TensorMeta,
    Window,
    digest,
    tensor_inputs,
)
from minify.errors import InvalidCandidate
from minify.passes.cut_ops import CUT_OPS, keep, neighbours, op_names
from minify.passes.wellformed import faults
from tests.cases import build, chain, given, nothing, op, several, show, storages, tensor, values

R = Ref
CHAIN = chain("x", ("torch.relu",), (".mul", 2.0), ("torch.exp",), ("torch.neg",))
DIAMOND = build(
    ["x", "w"],
    [
        op("a", "torch.relu", R("x")),
        op("b", "torch.mm", R("a"), R("w")),
        op("c", "torch.exp", R("a")),
        op("d", "torch.add", R("b"), R("c")),
    ],
    ["d"],
)
SPLIT = build(
    ["x"],
    [
        op("s", ".split", R("x"), 2, meta=several(tensor((2, 8)), tensor((2, 8)))),
        op("g", "operator.getitem", R("s"), 0, meta=tensor((2, 8))),
        op("n", "torch.neg", R("g"), meta=tensor((2, 8))),
        op("c", "torch.cat", R("s")),
    ],
    ["n", "c"],
)
MAX = build(
    ["x"],
    [
        op("m", "torch.max", R("x"), 0, meta=several(tensor((8,)), tensor((8,), "int64"))),
        op("g", "operator.getitem", R("m"), 0, meta=tensor((8,))),
        op("e", "torch.exp", R("g"), meta=tensor((8,))),
    ],
    ["e"],
)
SIZES = build(
    ["x"],
    [
        op("r", "torch.relu", R("x")),
        op("n", ".size", R("r"), 0, meta=ScalarMeta(4)),
        op("z", ".size", R("r"), meta=several(ScalarMeta(4), ScalarMeta(8))),
        op("v", ".view", R("r"), R("n"), -1),
        op("w", ".view", R("r"), R("z")),
    ],
    ["v", "w"],
)
IN_PLACE = build(
    ["x"],
    [
        op("y", "torch.relu", R("x"), meta=tensor(storage=7)),
        op("s", "torch.sigmoid", R("y")),
        op("p", ".add_", R("y"), 1, meta=tensor(storage=7)),
        op("t", "torch.tanh", R("y")),
        op("u", "torch.exp", R("p")),
    ],
    ["s", "t", "u"],
)
MASK = build(
    [],
    [
        op("m", "torch.zeros", (4, 8), meta=tensor(storage=7)),
        op("set", "operator.setitem", R("m"), 0, 3.0, meta=nothing()),
        op("e", "torch.exp", R("m")),
    ],
    ["e"],
)


SUBTRACTED = build(
    ["x"],
    [
        op("y", "torch.relu", R("x"), meta=tensor(storage=7)),
        op("p", ".sub_", R("y"), 1, meta=tensor(storage=7)),
        op("q", ".mul_", R("y"), 2, meta=tensor(storage=7)),
        op("t", "torch.tanh", R("y")),
    ],
    ["t"],
)
REWRITES = [
    ("the first op reads the original input", CHAIN, "a", "sinks", "x | a = torch.relu(x) | a", {"x": "recorded"}),
    ("a later op reads what came before", CHAIN, "c", "sinks", "b | c = torch.exp(b) | c", {"b": "b"}),
    ("neighbours stay joined", CHAIN, "b c", "sinks", "a | b = .mul(a, 2.0); c = torch.exp(b) | c", {"a": "a"}),
    (
        "two far ops become two programs in one",
        CHAIN,
        "a d",
        "sinks",
        "x c | a = torch.relu(x); d = torch.neg(c) | d a",
        {"x": "recorded", "c": "c"},
    ),
    (
        "all used shows what a cut op read",
        CHAIN,
        "a b",
        "all_used",
        "x | a = torch.relu(x); b = .mul(a, 2.0) | b",
        None,
    ),
    (
        "a value read inside and outside is no sink",
        DIAMOND,
        "a b",
        "sinks",
        "x w | a = torch.relu(x); b = torch.mm(a, w) | b",
        None,
    ),
    (
        "a value read inside and outside is used",
        DIAMOND,
        "a b",
        "all_used",
        "x w | a = torch.relu(x); b = torch.mm(a, w) | a b",
        None,
    ),
    (
        "a sequence passed whole becomes a tuple",
        SPLIT,
        "c",
        "sinks",
        "g s_1 | c = torch.cat((g, s_1)) | c",
        {"g": "g", "s_1": "s[1]"},
    ),
    ("an item of a cut sequence becomes an input", SPLIT, "n", "sinks", "g | n = torch.neg(g) | n", {"g": "g"}),
    (
        "an item read twice is one input",
        SPLIT,
        "n c",
        "sinks",
        "g s_1 | n = torch.neg(g); c = torch.cat((g, s_1)) | n c",
        None,
    ),
    (
        "indexing stays with its producer",
        MAX,
        "m",
        "sinks",
        "x | m = torch.max(x, 0); g = operator.getitem(m, 0) | g",
        None,
    ),
    (
        "a multi-output op nobody indexes is taken apart",
        SPLIT,
        "s",
        "sinks",
        "x | s = .split(x, 2); g = operator.getitem(s, 0) | g",
        None,
    ),
    ("a size that was cut becomes a number", SIZES, "v", "sinks", "r | v = .view(r, 4, -1) | v", {"r": "r"}),
    ("a shape that was cut becomes a tuple", SIZES, "w", "sinks", "r | w = .view(r, (4, 8)) | w", {"r": "r"}),
    (
        "a size stays with its producer, and reading it consumes nothing",
        SIZES,
        "r v",
        "sinks",
        "x | r = torch.relu(x); n = .size(r, 0); v = .view(r, n, -1) | v",
        None,
    ),
    (
        "a value is read as it was before a cut write",
        IN_PLACE,
        "s",
        "sinks",
        "y | s = torch.sigmoid(y) | s",
        {"y": "y"},
    ),
    ("a value is read as it was after a cut write", IN_PLACE, "t", "sinks", "y | t = torch.tanh(y) | t", {"y": "p"}),
    (
        "both versions of a value are kept apart",
        IN_PLACE,
        "s t u",
        "sinks",
        "y y_ | s = torch.sigmoid(y); t = torch.tanh(y_); u = torch.exp(y_) | s t u",
        {"y": "y", "y_": "p"},
    ),
    (
        "a kept write goes to the input and needs no output",
        IN_PLACE,
        "p t",
        "sinks",
        "y | p = .add_(y, 1); t = torch.tanh(y) | t",
        {"y": "y"},
    ),
    ("a write alone shows in the input", IN_PLACE, "p", "sinks", "y | p = .add_(y, 1) | ", {"y": "y"}),
    ("a write that a cut op read is shown when asked", IN_PLACE, "p", "all_used", "y | p = .add_(y, 1) | p", None),
    (
        "a write to a value made inside shows in the value",
        IN_PLACE,
        "y p",
        "sinks",
        "x | y = torch.relu(x); p = .add_(y, 1) | p",
        None,
    ),
    (
        "a write that has no name is in the value that its reader finds",
        MASK,
        "e",
        "sinks",
        "m | e = torch.exp(m) | e",
        {"m": "m"},
    ),
    (
        "what setitem wrote to is shown, setitem is not",
        MASK,
        "m set",
        "sinks",
        " | m = torch.zeros((4, 8)); set = operator.setitem(m, 0, 3.0) | m",
        None,
    ),
    (
        "a kept value is read anew after a cut write",
        MASK,
        "m e",
        "sinks",
        "m_ | m = torch.zeros((4, 8)); e = torch.exp(m_) | e m",
        {"m_": "m"},
    ),
    (
        "a kept value is written to anew after a cut write",
        SUBTRACTED,
        "y q t",
        "sinks",
        "x y_ | y = torch.relu(x); q = .mul_(y_, 2); t = torch.tanh(y_) | t y",
        {"x": "recorded", "y_": "p"},
    ),
    ("setitem alone writes to its input", MASK, "set", "sinks", "m | set = operator.setitem(m, 0, 3.0) | ", {"m": "m"}),
]


@pytest.mark.parametrize(
    ("case", "names", "consumers", "expected", "inputs"),
    [row[1:] for row in REWRITES],
    ids=[row[0] for row in REWRITES],
)
def test_keep_gives(case: Case, names: str, consumers: str, expected: str, inputs: dict[str, str] | None) -> None:
    candidate = keep(case, frozenset(names.split()), "base", consumers)
    assert show(candidate) == expected
    assert faults(candidate) == ()
    if inputs is not None:
        assert values(candidate) == inputs


def test_a_sequence_nobody_reads_gets_one_getitem_for_each_tensor() -> None:
    case = build(
        ["x"],
        [
            op("s", ".split", R("x"), 2, meta=several(tensor((2, 8)), ScalarMeta(1), tensor((2, 8)))),
            op("c", "torch.cat", R("s")),
        ],
        ["c"],
    )
    expected = "x | s = .split(x, 2); s_0 = operator.getitem(s, 0); s_2 = operator.getitem(s, 2) | s_0 s_2"
    assert show(keep(case, frozenset({"s"}), "base")) == expected


def test_cut_views_of_one_storage_go_on_sharing_it_with_the_input_they_view() -> None:
    case = build(
        [given("x", tensor(storage=3))],
        [
            op("v", ".view", R("x"), 32, meta=tensor((32,), storage=3)),
            op("w", ".t", R("x"), meta=tensor((8, 4), stride=(1, 8), storage=3)),
            op("a", "torch.relu", R("x")),
            op("b", "torch.exp", R("v"), meta=tensor((32,))),
            op("c", "torch.exp", R("w"), meta=tensor((8, 4))),
        ],
        ["a", "b", "c"],
    )
    candidate = keep(case, frozenset("abc"), "base")
    assert storages(candidate) == {"x": 0, "v": 0, "w": 0}
    assert [item.meta.stride for item in tensor_inputs(candidate)] == [(8, 1), (1,), (1, 8)]


def test_a_cut_view_of_a_kept_value_shares_nothing_with_it() -> None:
    case = build(
        ["x"],
        [
            op("y", "torch.relu", R("x"), meta=tensor(storage=3)),
            op("v", ".view", R("y"), 32, meta=tensor((32,), storage=3)),
            op("a", "torch.exp", R("y")),
            op("b", "torch.exp", R("v"), meta=tensor((32,))),
        ],
        ["a", "b"],
    )
    candidate = keep(case, frozenset("yab"), "base")
    kept = next(call.meta for call in candidate.graph.ops if call.name == "y")
    assert isinstance(kept, TensorMeta)
    assert storages(candidate)["v"] != kept.storage


def test_a_layout_is_kept_to_the_letter() -> None:
    layout = tensor((4, 8), "float16", stride=(1, 4), offset=3, requires_grad=True, flags=("conj",))
    case = build(["x"], [op("y", "torch.foo", R("x"), meta=layout), op("z", "torch.exp", R("y"))], ["z"])
    (item,) = tensor_inputs(keep(case, frozenset("z"), "base"))
    assert (item.meta.stride, item.meta.offset, item.meta.dtype) == ((1, 4), 3, "float16")
    assert (item.meta.requires_grad, item.meta.flags) == (True, ("conj",))


def test_an_input_that_is_written_to_is_no_leaf() -> None:
    y = tensor(requires_grad=True, storage=5)
    case = build(["x"], [op("y", "torch.exp", R("x"), meta=y), op("z", ".relu_", R("y"), meta=y)], ["z"])
    (item,) = tensor_inputs(keep(case, frozenset("z"), "base"))
    assert item.meta.requires_grad
    assert item.meta.flags == ("nonleaf",)


def test_versions_of_a_value_that_have_no_names_of_their_own_are_told_apart_by_their_readers() -> None:
    case = build(
        ["x"],
        [
            op("m", "torch.relu", R("x"), meta=tensor(storage=7)),
            op("a", "torch.exp", R("m")),
            op("set", "operator.setitem", R("m"), 0, 3.0, meta=nothing()),
            op("b", "torch.exp", R("m")),
        ],
        ["a", "b"],
    )
    assert values(keep(case, frozenset("ab"), "base")) == {"m": "m", "m_": "m@b"}


def test_zero_tensors_share_no_memory() -> None:
    zero = tensor(storage=-2, flags=("zerotensor",))
    ops = [op("x", "torch.zero", meta=zero), op("y", "torch.zero", meta=zero), op("a", "torch.add", R("x"), R("y"))]
    candidate = keep(build([], ops, ["a"]), frozenset("a"), "base")
    assert storages(candidate) == {"x": 0, "y": 1}
    assert values(candidate) == {"x": "zeros", "y": "zeros"}


def test_the_number_of_a_zero_tensor_input_may_be_that_of_a_later_storage() -> None:
    zero = tensor(storage=1, flags=("zerotensor",))
    case = build(
        [given("z", zero), given("x", tensor(storage=0))],
        [
            op("a", "torch.relu", R("x"), meta=tensor(storage=1)),
            op("b", "torch.mul", R("z"), R("a"), meta=tensor(storage=2)),
        ],
        ["b"],
    )
    assert storages(keep(case, frozenset("b"), "base")) == {"z": 1, "a": 0}


def test_a_scalar_parameter_stays_symbolic() -> None:
    scalar = ScalarInput("n", 4, dynamic=True)
    case = build([scalar, "x"], [op("a", ".view", R("x"), R("n"), -1), op("b", "torch.exp", R("a"))], ["b"])
    candidate = keep(case, frozenset("a"), "base")
    assert candidate.inputs[0] == scalar
    assert show(candidate) == "n x | a = .view(x, n, -1) | a"


def dynamic_dims(shape: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    """Of the intermediate `a` of `shape` as an input, where dim 0 of `x`, 7 wide, is dynamic; `y` is static."""
    x, y = given("x", tensor((7, 8)), dynamic=(0,)), given("y", tensor(other))
    ops = [op("a", "torch.mm", R("x"), R("y"), meta=tensor(shape)), op("b", "torch.exp", R("a"), meta=tensor(shape))]
    (made,) = keep(build([x, y], ops, ["b"]), frozenset("b"), "base").inputs
    assert isinstance(made, Input) and made.name == "a"
    return made.dynamic_dims


def test_an_intermediate_is_dynamic_where_it_has_the_size_of_a_dynamic_dim() -> None:
    assert dynamic_dims((7, 5), (8, 5)) == (0,)
    assert dynamic_dims((5, 7), (8, 5)) == (1,)
    assert dynamic_dims((7, 7), (8, 7)) == (), "7 is a static size too"


def test_keeping_every_op_keeps_the_program() -> None:
    for case in (CHAIN, DIAMOND, SPLIT, MAX, SIZES, IN_PLACE, MASK):
        candidate = keep(case, frozenset(op_names(case)), "base", "outputs")
        assert show(candidate).split(" | ")[:2] == show(case).split(" | ")[:2] or case is SPLIT
        assert set(case.graph.outputs) <= set(candidate.graph.outputs)


def test_cutting_twice_is_cutting_once() -> None:
    once = keep(CHAIN, frozenset("bc"), "base")
    again = keep(once, frozenset("bc"), "other")
    assert digest(once) == digest(again)


@pytest.mark.parametrize(
    ("case", "names"),
    [
        (CHAIN, ""),
        (CHAIN, "unknown"),
        (
            build(
                ["x"],
                [op("e", "torch.enter", meta=OpaqueMeta("ctx")), op("q", "torch.quit", R("e"), meta=nothing())],
                [],
            ),
            "q",
        ),
        (build(["x"], [op("q", "torch._C._set_grad_enabled", False, meta=nothing())], []), "q"),
    ],
    ids=["no op", "an unknown op", "a reader without its context", "nothing to see"],
)
def test_keep_refuses(case: Case, names: str) -> None:
    with pytest.raises(InvalidCandidate):
        keep(case, frozenset(names.split()), "base")


def test_a_number_is_returned_where_nothing_else_is() -> None:
    case = build(["x"], [op("i", ".item", R("x"), meta=ScalarMeta(1.5)), op("a", "torch.add", R("x"), R("i"))], ["a"])
    assert show(keep(case, frozenset("i"), "base")) == "x | i = .item(x) | i"
    assert show(keep(case, frozenset("a"), "base")) == "x | a = torch.add(x, 1.5) | a"


def test_a_list_argument_keeps_being_a_list() -> None:
    case = build(["x"], [op("a", "torch.relu", R("x")), op("c", "torch.cat", ListArg((R("a"), R("x"))))], ["c"])
    candidate = keep(case, frozenset("c"), "base")
    assert candidate.graph.ops[0].args == (ListArg((R("a"), R("x"))),)


def test_neighbours_follow_values_through_indexing_and_memory() -> None:
    assert neighbours(MAX) == {"m": ("e",), "e": ("m",)}
    assert neighbours(DIAMOND) == {"a": ("b", "c"), "b": ("a", "d"), "c": ("a", "d"), "d": ("b", "c")}
    assert neighbours(MASK) == {"m": ("set", "e"), "set": ("m", "e"), "e": ("m", "set")}


ENTER, EXIT = "torch.amp.autocast_mode._enter_autocast", "torch.amp.autocast_mode._exit_autocast"
REGION = build(
    ["x"],
    [
        op("a", "torch.relu", R("x")),
        op("on", ENTER, "cpu", None, True, None, meta=OpaqueMeta("autocast")),
        op("b", "torch.mm", R("a"), R("a")),
        op("c", "torch.mm", R("b"), R("b")),
        op("off", EXIT, R("on"), meta=nothing()),
        op("d", "torch.exp", R("c")),
    ],
    ["d"],
)


@pytest.mark.parametrize(
    ("names", "autocast"),
    [
        ("b", (("cpu", "bfloat16"),)),
        ("b c", (("cpu", "bfloat16"),)),
        ("a", ()),
        ("d", ()),
        ("c d", ()),
        ("on b off", ()),
    ],
)
def test_a_cut_autocast_region_becomes_a_setting_where_every_kept_op_lies_in_it(
    names: str, autocast: tuple[tuple[str, str], ...]
) -> None:
    assert keep(REGION, frozenset(names.split()), "base").settings.autocast == autocast


def test_a_value_written_to_through_a_cut_view_is_read_as_the_write_left_it() -> None:
    case = build(
        ["x"],
        [
            op("p", "torch.relu", R("x"), meta=tensor(storage=7)),
            op("v", ".view", R("p"), 32, meta=tensor((32,), storage=7)),
            op("m", ".mul_", R("v"), 2.0, meta=tensor((32,), storage=7)),
            op("r", "torch.exp", R("p")),
        ],
        ["r"],
    )
    candidate = keep(case, frozenset("pmr"), "base")
    assert show(candidate) == "x v p_ | p = torch.relu(x); m = .mul_(v, 2.0); r = torch.exp(p_) | r p"
    assert storages(candidate) == {"x": 0, "v": 1, "p_": 1}


def test_the_first_input_of_a_memory_is_the_one_that_is_needed_first() -> None:
    case = build(
        [given("x", tensor(storage=7))],
        [
            op("s", "operator.setitem", R("x"), 0, 1.0, meta=nothing()),
            op("t", ".t", R("x"), meta=tensor((8, 4), stride=(1, 8), storage=7)),
            op("m", ".mul_", R("t"), 2.0, meta=tensor((8, 4), stride=(1, 8), storage=7)),
            op("r", "torch.exp", R("x")),
        ],
        ["r"],
    )
    candidate = keep(case, frozenset("mr"), "base")
    assert storages(candidate) == {"t": 0, "x": 0}
    assert values(candidate) == {"t": "t", "x": "x"}


def test_data_that_no_longer_fills_its_memory_is_taken_from_the_base_where_it_gets_a_view() -> None:
    x = given("x", tensor(storage=7), Recorded("0" * 32, Window((4, 8), (16, 1), 0)))
    view = tensor((32,), storage=7)
    ops = [
        op("v", ".view", R("x"), 32, meta=view),
        op("a", "torch.exp", R("x")),
        op("b", "torch.exp", R("v"), meta=view),
    ]
    case = build([x], ops, ["a", "b"])
    assert values(keep(case, frozenset("ab"), "base")) == {"x": "x", "v": "v"}
    assert values(keep(case, frozenset("a"), "base")) == {"x": "recorded"}


def test_op_names_leaves_free_ops_out() -> None:
    assert op_names(SIZES) == ("r", "v", "w")
    assert op_names(SPLIT) == ("s", "n", "c")


def test_the_sweep_removes_single_ops_under_the_digest_of_the_case() -> None:
    assert CUT_OPS.find(CHAIN) == (("a",), ("b",), ("c",), ("d",))
    candidate = CUT_OPS.rewrite(CHAIN, (("b",),))
    assert show(candidate) == "x b | a = torch.relu(x); c = torch.exp(b); d = torch.neg(c) | d a"
    assert tensor_inputs(candidate)[1].value == Derived(digest(CHAIN), "b")


def test_the_sweep_leaves_a_single_op_alone() -> None:
    assert CUT_OPS.find(chain("x", ("torch.relu",))) == ()
