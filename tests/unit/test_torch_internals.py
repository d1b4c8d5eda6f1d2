"""The room with torch's private parts: names of functions, configs, and watching what a script compiles."""

from __future__ import annotations

import functools
import math
import operator
import os
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch._dynamo import config as dynamo_config
from torch._inductor import config as inductor_config

from minify import interpret, torch_internals
from minify.torch_internals import configs, function_name, resolve


def functions_of(module: Any) -> Iterator[Any]:
    """The functions that a module says are its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in getattr(module, "__all__", None) or dir(module):
            value = getattr(module, name, None)
            if callable(value) and not isinstance(value, type | types.ModuleType) and not name.startswith("_"):
                yield value


MODULES = {
    "torch.special": torch.special,
    "torch.linalg": torch.linalg,
    "torch.fft": torch.fft,
    "operator": operator,
    "math": math,
}


@pytest.mark.parametrize("module", MODULES.values(), ids=MODULES)
def test_every_function_of_a_module_is_found_by_its_name(module: Any) -> None:
    functions = list(functions_of(module))
    assert len(functions) > 10
    assert [function for function in functions if resolve(function_name(function)) is not function] == []


NAMES = {
    "torch.relu": torch.relu,
    "torch.add": torch.add,
    "torch.conv2d": F.conv2d,
    "torch._foreach_mul_": torch._foreach_mul_,
    "torch.einsum": torch.einsum,
    "torch.split": torch.split,
    "torch.stft": torch.stft,
    "torch.functional.unique": torch.unique,
    "torch.nn.functional.relu": F.relu,
    "torch.nn.functional.gelu": F.gelu,
    "torch.nn.functional.linear": F.linear,
    "torch.nn.functional.softmax": F.softmax,
    "torch.nn.functional.max_pool2d": F.max_pool2d,
    "torch.nn.functional.adaptive_max_pool1d": F.adaptive_max_pool1d,
    "torch.nn.functional.fractional_max_pool2d": F.fractional_max_pool2d,
    "torch.nn.functional.scaled_dot_product_attention": F.scaled_dot_product_attention,
    "torch.nn.functional.interpolate": F.interpolate,
    "torch.nn.functional.multi_head_attention_forward": F.multi_head_attention_forward,
    "torch.linalg.norm": torch.linalg.norm,
    "torch.fft.fft": torch.fft.fft,
    "torch.special.expit": torch.special.expit,
    "torch.Tensor.add": torch.Tensor.add,
    "torch.Tensor.add_": torch.Tensor.add_,
    "operator.add": operator.add,
    "operator.getitem": operator.getitem,
    "operator.setitem": operator.setitem,
    "operator.iadd": operator.iadd,
    "builtins.getattr": getattr,
    "builtins.max": max,
    "math.sqrt": math.sqrt,
    "torch.ops.aten.add.Tensor": torch.ops.aten.add.Tensor,
    "torch.ops.aten.relu.default": torch.ops.aten.relu.default,
    "torch.ops.aten.sum.dim_IntList": torch.ops.aten.sum.dim_IntList,
    "torch.ops.aten._softmax.default": torch.ops.aten._softmax.default,
    "torch.ops.aten.add": torch.ops.aten.add,
    "torch.ops.prims.convert_element_type.default": torch.ops.prims.convert_element_type.default,
    "torch.ops.higher_order.map_impl": torch.ops.higher_order.map_impl,
    "torch.amp.autocast_mode._enter_autocast": torch.amp.autocast_mode._enter_autocast,
}


@pytest.mark.parametrize("name", NAMES)
def test_a_function_has_the_name_users_know_it_by(name: str) -> None:
    function = NAMES[name]
    found = function_name(function)
    assert resolve(found) is function
    assert found == name or name == "torch.functional.unique"


@pytest.mark.parametrize("module", [torch, F], ids=["torch", "torch.nn.functional"])
def test_no_public_function_that_takes_tensors_is_without_a_name(module: Any) -> None:
    lost = []
    for name in dir(module):
        function = getattr(module, name)
        if isinstance(function, types.FunctionType | types.BuiltinFunctionType) and not name.startswith("_"):
            try:
                lost += [] if resolve(function_name(function)) is function else [name]
            except ValueError:
                lost.append(name)
    assert lost == []


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (torch._C._set_grad_enabled, "torch.set_grad_enabled"),
        (torch.ops.higher_order.cond, "torch.cond"),
        (torch.ops.higher_order.tag_activation_checkpoint, "torch.utils.checkpoint.checkpoint"),
    ],
)
def test_a_function_that_only_the_compiler_calls_goes_by_the_one_that_users_call(function: Any, name: str) -> None:
    assert function_name(function) == name
    assert callable(resolve(name))


@pytest.mark.parametrize("function", [lambda x: x, types.SimpleNamespace(), functools.partial(torch.relu)])
def test_a_function_that_no_import_reaches_has_no_name(function: Any) -> None:
    with pytest.raises(ValueError, match="no importable name"):
        function_name(function)


@pytest.mark.parametrize(
    "name", ["torch.no_such_function", "no_such_module.f", "torch.ops.aten.no_such_op.default", "torch.pi", "f"]
)
def test_a_name_of_nothing_is_refused(name: str) -> None:
    with pytest.raises((AttributeError, ImportError)):
        resolve(name)


def test_an_op_that_is_defined_anew_is_found_anew() -> None:
    found = []
    for by in (1, 2):
        with torch.library._scoped_library("internals_test", "FRAGMENT") as library:
            library.define("shift(Tensor x) -> Tensor")
            library.impl("shift", lambda x, by=by: x + by, "CPU")
            found.append(resolve("torch.ops.internals_test.shift.default")(torch.zeros(1)).item())
    assert found == [1, 2]


# --- configs --------------------------------------------------------------------------------------------------------------

INDUCTOR, DYNAMO = "torch._inductor.config", "torch._dynamo.config"


@pytest.mark.parametrize(
    ("module", "key", "value"),
    [
        (INDUCTOR, "max_fusion_size", 7),
        (INDUCTOR, "epilogue_fusion", False),
        (INDUCTOR, "prologue_fusion", False),
        (INDUCTOR, "fallback_random", True),
        (INDUCTOR, "cpp.inject_relu_bug_TESTING_ONLY", "accuracy"),
        (INDUCTOR, "cpp.inject_log1p_bug_TESTING_ONLY", "accuracy"),
        (INDUCTOR, "triton.skip_l1_cache", True),
        (INDUCTOR, "cpp.gemm_cache_blocking", "2,2,2"),
        (INDUCTOR, "_pre_fusion_custom_pass", list),
        (INDUCTOR, "_post_fusion_custom_pass", list),
        (DYNAMO, "specialize_float", True),
        (DYNAMO, "capture_scalar_outputs", True),
        (DYNAMO, "trace_numpy", False),
        ("torch._functorch.config", "functionalize_rng_ops", True),
    ],
)
def test_a_config_that_decides_what_is_compiled_is_seen_and_put_back(module: str, key: str, value: object) -> None:
    before = torch_internals.config_changes()
    with torch_internals.config_patch([(module, key, value)]):
        assert (module, key, value) in torch_internals.config_changes()
    assert torch_internals.config_changes() == before


@pytest.mark.parametrize(
    ("module", "key", "value"),
    [
        (INDUCTOR, "compile_threads", 7),
        (INDUCTOR, "fx_graph_cache", False),
        (INDUCTOR, "worker_start_method", "fork"),
        (INDUCTOR, "trace.enabled", True),
        (INDUCTOR, "log_tlparse", True),
        (INDUCTOR, "autoheuristic_log_path", "x"),
        (DYNAMO, "repro_after", "aot"),
        (DYNAMO, "debug_dir_root", "x"),
        (DYNAMO, "verbose", True),
        ("torch._functorch.config", "enable_autograd_cache", False),
    ],
)
def test_a_config_of_the_process_never_travels_with_a_case(module: str, key: str, value: object) -> None:
    with torch_internals.config_patch([(module, key, value)]):
        assert key not in [changed for _, changed, _ in torch_internals.config_changes()]


def test_a_config_set_to_its_default_is_no_change() -> None:
    with torch_internals.config_patch([(INDUCTOR, "max_fusion_size", inductor_config.max_fusion_size)]):
        assert torch_internals.config_changes() == []


def test_a_config_that_torch_does_not_know_is_refused_and_the_others_put_back() -> None:
    with (
        pytest.raises(AttributeError),
        torch_internals.config_patch([(INDUCTOR, "max_fusion_size", 7), (INDUCTOR, "no_such_key", 1)]),
    ):
        pass
    assert torch_internals.config_changes() == []


def test_configs_assigned_to_meanwhile_are_put_back() -> None:
    size = inductor_config.max_fusion_size
    with torch_internals.config_patch([(INDUCTOR, "epilogue_fusion", False)]):
        with pytest.raises(ZeroDivisionError), torch_internals.configs_kept():
            inductor_config.max_fusion_size = 3
            inductor_config.epilogue_fusion = True
            dynamo_config.verbose = not dynamo_config.verbose
            1 / 0  # noqa: B018
        assert torch_internals.config_changes() == [(INDUCTOR, "epilogue_fusion", False)]
    assert inductor_config.max_fusion_size == size
    assert torch_internals.config_changes() == []


@pytest.fixture
def tuned(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Torch as if it had been imported under variables that tune kernels, and that keep a cache and a log."""
    for name in ("MAX_AUTOTUNE", "CACHE_DIR", "FX_GRAPH_CACHE_DEFAULT", "WORKER_SUPPRESS_LOGGING"):
        monkeypatch.setenv(f"TORCHINDUCTOR_{name}", "1")
    monkeypatch.setenv("TORCHINDUCTOR_CPP_MIN_CHUNK_SIZE", "77")
    monkeypatch.setattr(inductor_config._config["max_autotune"], "default", True)  # type: ignore[attr-defined]
    monkeypatch.setattr(inductor_config._config["cpp.min_chunk_size"], "default", 77)  # type: ignore[attr-defined]
    configs._defaults_without_environment.cache_clear()
    yield
    configs._defaults_without_environment.cache_clear()


TUNED = [(INDUCTOR, "cpp.min_chunk_size", 77), (INDUCTOR, "max_autotune", True)]


def test_a_config_that_an_environment_variable_sets_is_a_change(tuned: None) -> None:
    assert torch_internals.config_changes() == TUNED
    assert os.environ["TORCHINDUCTOR_MAX_AUTOTUNE"] == "1"
    with torch_internals.config_patch([*TUNED, (INDUCTOR, "max_autotune", False)]):
        assert torch_internals.config_changes() == TUNED[:1]


def test_where_a_case_is_run_environment_variables_set_nothing(tuned: None) -> None:
    for _ in range(2):  # torch puts a config back by setting it, so that it counts as touched from then on
        with torch_internals.no_caches(), torch_internals.config_patch(TUNED[1:]), torch_internals.fallback_random():
            assert (inductor_config.cpp.min_chunk_size, inductor_config.max_autotune) == (512, True)
    assert torch_internals.config_changes() == TUNED


def test_no_cache_answers_for_the_compiler() -> None:
    with torch_internals.no_caches():
        assert inductor_config.force_disable_caches
        assert not dynamo_config.automatic_dynamic_local_pgo


def test_modes_that_are_entered_and_not_left_are_put_back() -> None:
    with interpret.modes_kept():
        torch.autocast("cpu", dtype=torch.float16).__enter__()
        torch.set_grad_enabled(False)
        torch._C._functorch._vmap_increment_nesting(3, "error")
    assert torch.is_grad_enabled()
    assert not torch.is_autocast_enabled("cpu")
    assert not torch_internals.functional_guard()


# --- watching -------------------------------------------------------------------------------------------------------------


class Watched:
    """Notes how each graph compiler was asked for, and the ops of each graph it was given."""

    def __init__(self) -> None:
        self.how: list[dict[str, Any]] = []
        self.graphs: list[list[str]] = []

    def wrap(self, compiler: Callable[..., Any], how: dict[str, Any]) -> Callable[..., Any]:
        self.how.append(how)

        def watching(module: torch.fx.GraphModule, inputs: list[Any], **kwargs: Any) -> Any:
            self.graphs.append([node.name for node in module.graph.nodes if node.op == "call_function"])
            return compiler(module, inputs, **kwargs)

        return watching


@pytest.fixture
def watched() -> Iterator[Watched]:
    compile_, torch.compiler.reset = torch.compile, torch.compiler.reset
    torch.compiler.reset()
    seen = Watched()
    with torch_internals.watched_compiles(seen.wrap):
        yield seen
    torch.compiler.reset()
    assert torch.compile is compile_


X = torch.arange(3.0)


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def my_backend(module: torch.fx.GraphModule, inputs: list[Any], **kwargs: Any) -> Any:
    return module.forward


def as_call() -> Any:
    return torch.compile(double, backend="eager")(X)


def as_decorator_with_arguments() -> Any:
    @torch.compile(backend="eager", dynamic=False)
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    return doubled(X)


def as_method_of_a_module() -> Any:
    class Doubling(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    module = Doubling()
    module.compile(backend="eager")
    return module(X)


def with_own_backend() -> Any:
    return torch.compile(double, backend=my_backend)(X)


def with_own_backend_and_options() -> Any:
    return torch.compile(double, backend=my_backend, options={"level": 2}, dynamic=True)(X)


def through_dynamo() -> Any:
    return torch._dynamo.optimize("eager")(double)(X)


def through_dynamo_with_own_backend() -> Any:
    return torch._dynamo.optimize(my_backend)(double)(X)


@pytest.mark.parametrize(
    ("run", "how"),
    [
        (as_call, {"backend": "eager"}),
        (as_decorator_with_arguments, {"backend": "eager", "dynamic": False}),
        (as_method_of_a_module, {"backend": "eager"}),
        (with_own_backend, {"backend": my_backend}),
        (with_own_backend_and_options, {"backend": my_backend, "options": {"level": 2}, "dynamic": True}),
        (through_dynamo, {"backend": "eager"}),
        (through_dynamo_with_own_backend, {"backend": my_backend}),
    ],
)
def test_every_way_to_compile_is_watched(run: Callable[[], Any], how: dict[str, Any], watched: Watched) -> None:
    assert torch.equal(run(), X * 2)
    assert watched.how == [how]
    assert watched.graphs == [["mul"]]


@pytest.mark.parametrize(
    ("asked", "how"),
    [
        ({}, {}),
        ({"mode": "max-autotune"}, {"mode": "max-autotune"}),
        ({"options": {"max_fusion_size": 3}}, {"options": {"max_fusion_size": 3}}),
        ({"dynamic": True, "fullgraph": True}, {"dynamic": True, "fullgraph": True}),
        ({"backend": "inductor"}, {"backend": "inductor"}),
    ],
)
def test_what_inductor_was_asked_for_is_passed_on(asked: dict[str, Any], how: dict[str, Any], watched: Watched) -> None:
    torch.compile(double, **asked)
    torch.compile(**asked)(double)
    assert watched.how == [how, how]


def test_a_bare_decorator_is_watched(watched: Watched) -> None:
    @torch.compile
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    del doubled
    assert watched.how == [{}]


BEFORE = torch.compile


@pytest.mark.parametrize(
    ("asked", "how"),
    [
        ({"mode": "reduce-overhead"}, {"backend": "inductor", "options": {"triton.cudagraphs": True}, "dynamic": None}),
        (
            {"options": {"max_fusion_size": 3}},
            {"backend": "inductor", "options": {"max_fusion_size": 3}, "dynamic": None},
        ),
        ({"backend": "eager", "dynamic": True}, {"backend": "eager", "dynamic": True}),
        ({"backend": my_backend, "options": {"a": 1}}, {"backend": my_backend, "options": {"a": 1}, "dynamic": None}),
    ],
)
def test_a_compile_function_taken_out_of_torch_earlier_is_watched_too(
    asked: dict[str, Any], how: dict[str, Any], watched: Watched
) -> None:
    BEFORE(double, **asked)
    assert watched.how == [how]


def test_everything_is_put_back_when_the_script_raises() -> None:
    from torch._dynamo import eval_frame

    before = (torch.compile, eval_frame.get_compiler_fn)
    with pytest.raises(ZeroDivisionError), torch_internals.watched_compiles(Watched().wrap):
        assert torch.compile is not before[0]
        1 / 0  # noqa: B018
    assert (torch.compile, eval_frame.get_compiler_fn) == before


def test_compiling_twice_with_one_backend_does_not_recompile(watched: Watched) -> None:
    for _ in range(2):
        torch.compile(double, backend="eager")(X)
    assert len(watched.graphs) == 1


def test_leaves_of_any_nesting_are_mapped() -> None:
    assert torch_internals.map_leaves(lambda leaf: leaf + 1, {"a": (1, [2]), "b": 3}) == {"a": (2, [3]), "b": 4}
