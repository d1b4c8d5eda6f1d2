"""The slice of a script that a captured program needs: tables of scripts, their kept lines marked with `+`."""

from __future__ import annotations

import functools
import sys
import textwrap
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from minify.capture.prelude import expression_for, local_imports, prelude
from minify.errors import UsageError

NAMES = {
    "a function and nothing else": """
        + def my_backend(gm, inputs):
        +     return gm.forward
          def other(gm, inputs):
              return gm
          """,
    "names read in bodies, defaults, decorators, bases and annotations": """
          import os
        + import functools
        + import torch
        + WIDTH = 3
          HEIGHT = 4
        + class Base:
        +     pass
        + def wrap(fn):
        +     return functools.wraps(fn)(lambda *a: fn(*a))
        + class Size(int):
        +     pass
        + class Pass(Base):
        +     def __call__(self, graph):
        +         return inner(graph)
        + def inner(graph: Size):
        +     return torch.relu(graph)
        + @wrap
        + def my_backend(gm, inputs, width=WIDTH):
        +     return Pass()
          print(os.getcwd(), HEIGHT)
          """,
    "a local name hides the global one": """
          graph = 1
          x = 2
          y = 3
          z = 4
          t = 5
        + def my_backend(graph, inputs):
        +     x = inputs
        +     def nested():
        +         nonlocal x
        +         x = [y for y in x]
        +     try:
        +         pass
        +     except ValueError as z:
        +         pass
        +     from os import path as t
        +     return graph, nested, lambda y: y, t
          """,
    "a model and its compilation are left behind": """
        + import torch
        + def my_backend(gm, inputs):
        +     return torch.fx.Interpreter(gm).run
          class Model(torch.nn.Module):
              def forward(self, x):
                  return x.relu()
          model = Model()
          compiled = torch.compile(model, backend=my_backend)
          print(compiled(torch.ones(3)))
          if __name__ == "__main__":
              my_backend = None
              compiled(torch.ones(4))
          """,
    "everything inside a function that is called while the module runs": """
          import torch
        + def make():
        +     def my_backend(gm, inputs):
        +         return gm
        +     return my_backend, LEVEL
        + LEVEL = 2
          _ = make()
        + my_backend, level = make()
          """,
    "imports that may be missing": """
        + try:
        +     import triton
        + except ImportError:
        +     triton = None
          try:
              import numpy
          except ImportError:
              pass
        + def my_backend(gm, inputs):
        +     return triton
          """,
    "a value with conditions, a type, an increment, an item or an attribute set later": """
        + import torch
        + device = "cpu"
        + if torch.cuda.is_available():
        +     device = "cuda"
        + level: int = 1
        + level += 1
        + TABLE = {}
        + TABLE["a"] = level
        + for key in "bc":
        +     TABLE[key] = 0
        + TABLE.update(d=1)
        + CALLS = []
          other = {}
          other["a"] = TABLE
        + def my_backend(gm, inputs):
        +     global device
        +     CALLS.append(device)
        +     return TABLE
        + my_backend.name = "mine"
          my_backend(None, None)
          len(CALLS)
          """,
    "an overwritten value is not needed": """
          def my_backend(gm, inputs):
              return gm
          limit = 1
        + limit = 2
          my_backend = 3
        + def my_backend(gm, inputs, limit=limit):
        +     return gm.forward
          limit = 4
          """,
    "a decorator that reads the earlier value": """
        + import functools
        + @functools.singledispatch
        + def my_backend(gm):
        +     return gm
        + @my_backend.register
        + def _(gm: int):
        +     return gm
          """,
    "what a run of the compiled model leaves behind is not a definition": """
        + import torch
        + SEEN = []
        + x = torch.ones(3)
        + def my_backend(gm, inputs):
        +     SEEN.append(x)
        +     return gm
          compiled = torch.compile(torch.relu, backend=my_backend)
          def run(x):
              return compiled(x)
          SEEN.append(compiled(x))
          SEEN.append(run(x))
          for _ in range(3):
              SEEN.append(compiled(x))
          out = compiled(x)
          SEEN.extend(out)
          x = compiled(x)
          """,
    "a table that its own functions read": """
        + TABLE = {}
        + def f():
        +     return TABLE["g"]()
        + TABLE["f"] = f
        + def my_backend(gm, inputs):
        +     return TABLE["f"]
          """,
    "registrations of the wanted object": """
          import torch
        + from torch._dynamo import allow_in_graph, register_backend
        + from torch.utils import _pytree
        + class Pair:
        +     pass
          class Other:
              pass
        + _pytree.register_pytree_node(Pair, lambda p: ([p], None), lambda c, _: c[0])
          _pytree.register_pytree_node(Other, lambda p: ([p], None), lambda c, _: c[0])
        + def inner(x):
        +     return x
        + allow_in_graph(inner)
        + def my_backend(gm, inputs):
        +     return Pair, inner
        + register_backend(my_backend, name="mine")
          model = torch.nn.Linear(2, 2)
          model.register_forward_hook(my_backend)
          torch.set_default_device(my_backend)
          """,
    "a script for types alone": """
          from typing import TYPE_CHECKING
          import typing
          if TYPE_CHECKING:
              from torch.fx import GraphModule
          if typing.TYPE_CHECKING:
              from torch import Tensor
          def my_backend2(gm: "Tensor"):
              return gm
        + def my_backend(gm: "GraphModule", inputs):
        +     return gm.forward
          """,
    "an annotation in quotes": """
        + from torch.fx import GraphModule
        + def my_backend(gm: "GraphModule", inputs):
        +     return gm.forward
          """,
    "a star import that may hold a name": """
        + from torch.fx import *
          import torch
        + def my_backend(gm, inputs):
        +     return Interpreter(gm).run, len
          """,
    "no star import where every name is known": """
          from torch.fx import *
        + def my_backend(gm, inputs):
        +     return len(inputs), __name__
          """,
    "the import of a submodule that is read, not the one of another": """
        + import torch
          import torch._dynamo
        + import torch._inductor.config
        + def my_backend(gm, inputs):
        +     return torch.relu, torch._inductor.config.debug
          """,
    "a submodule import that alone binds the package": """
        + import torch.fx
        + def my_backend(gm, inputs):
        +     return torch.relu
          """,
    "global switches are settings, not part of a definition": """
          import os
          import sys
        + import torch
          import torch._inductor.config
          os.environ["TORCH_LOGS"] = "+dynamo"
          sys.path.append("..")
          torch._inductor.config.max_fusion_size = 1
          torch.manual_seed(0)
        + def my_backend(gm, inputs):
        +     return torch.relu
          """,
    "blocks, classes, async functions and patterns": """
          import contextlib
        + import threading
          unused = threading.Lock()
        + lock = threading.Lock()
        + with lock:
        +     low = 1
        + class Sizes:
        +     low = low
        +     sizes = [size for size in range(low)]
        + async def fetch(x):
        +     return await x
        + if (size := len(Sizes.sizes)) > 1:
        +     pass
        + def my_backend(gm, inputs):
        +     match gm:
        +         case Sizes(low=value):
        +             return value, size
        +     return fetch
          del unused
          """,
    "an import done twice": """
        + import torch
          import os
          import torch
        + def my_backend(gm, inputs):
        +     return torch.relu
          """,
    "an import that another one replaces": """
        + from a import f
        + from b import f
        + def my_backend(gm, inputs):
        +     return f
          """,
    "an autograd function": """
        + import torch
        + EPS = 1e-6
        + class my_backend(torch.autograd.Function):
        +     @staticmethod
        +     def forward(ctx, x):
        +         return x + EPS
        +     @staticmethod
        +     def backward(ctx, grad):
        +         return grad
          y = my_backend.apply(torch.ones(2))
          """,
}

OPS = {
    "the decorators of torch.library": """
        + import torch
          from torch import nn
          NAME = "model"
        + @torch.library.custom_op("mylib::scale", mutates_args=())
        + def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
        +     return x * factor
        + @scale.register_fake
        + def _(x, factor):
        +     return torch.empty_like(x)
        + @scale.register_kernel("cpu")
        + def _(x, factor):
        +     return x * factor
        + def backward(ctx, grad):
        +     return grad * ctx.factor, None, scale
        + def setup(ctx, inputs, output):
        +     ctx.factor = inputs[1]
        + scale.register_autograd(backward, setup_context=setup)
          @torch.library.custom_op("mylib2::other", mutates_args=())
          def other(x: torch.Tensor) -> torch.Tensor:
              return x
          @other.register_fake
          def _(x):
              return x
          class Model(nn.Module):
              def forward(self, x):
                  return scale(torch.ops.mylib.scale(x, 2.0), 3.0)
          out = torch.compile(Model())(torch.ones(2))
          print(scale(out, 1.0))
          """,
    "a library and all that is done through it": """
        + import torch
        + from torch.library import Library, impl
        + lib = Library("mylib", "DEF")
          rest = Library("rest", "DEF")
        + lib.define("foo(Tensor x) -> Tensor")
          rest.define("foo(Tensor x) -> Tensor")
        + @impl(lib, "foo", "CPU")
        + def foo_cpu(x):
        +     return x.clone()
          @impl(rest, "foo", "CPU")
          def rest_cpu(x):
              return x.clone()
        + def foo_meta(x):
        +     return torch.empty_like(x)
        + lib.impl("foo", foo_meta, "Meta")
        + lib._register_fake("foo", foo_meta)
        + for key in ("CUDA", "XPU"):
        +     lib.impl("foo", foo_cpu, key)
        + torch.library.impl(lib, "foo", "AutogradCPU")(foo_cpu)
          def later():
              lib.define("bar(Tensor x) -> Tensor")
          """,
    "qualified names in calls": """
        + import torch
        + torch.library.define("mylib::foo", "(Tensor x) -> Tensor")
        + @torch.library.impl("mylib::foo", "cpu")
        + def foo(x):
        +     return x.clone()
        + @torch.library.register_fake("mylib::foo")
        + def _(x):
        +     return torch.empty_like(x)
        + def backward(ctx, grad):
        +     return grad
        + torch.library.register_autograd("mylib::foo", backward)
        + torch.library.register_kernel("mylib::foo", "cuda")(foo)
          """,
    "lowerings, decompositions and aliases of the op": """
        + import torch
        + from torch._inductor.lowering import lowerings, make_fallback, register_lowering
        + import torch._decomp as decomp
        + @torch.library.custom_op("mylib::foo", mutates_args=())
        + def foo(x: torch.Tensor) -> torch.Tensor:
        +     return x.clone()
        + op = torch.ops.mylib.foo.default
        + @register_lowering(torch.ops.mylib.foo)
        + def lower(x):
        +     return x
        + @decomp.register_decomposition([op])
        + def decompose(x):
        +     return x
        + make_fallback(op)
        + lowerings[torch.ops.mylib.foo] = lower
          lowerings[torch.ops.other.foo] = lower
          @register_lowering(torch.ops.aten.relu)
          def relu(x):
              return x
          alias = torch.ops.mylib.foo
          out = alias(torch.ones(3))
          """,
    "a namespace kept in a name": """
        + import torch
        + NS = "mylib"
        + QUALNAME = "mylib::bar"
        + lib = torch.library.Library(NS, "FRAGMENT")
        + lib.define("foo(Tensor x) -> Tensor")
        + @torch.library.register_fake(f"{NS}::foo")
        + def _(x):
        +     return x
        + @torch.library.custom_op(QUALNAME, mutates_args=())
        + def bar(x: torch.Tensor) -> torch.Tensor:
        +     return x.clone()
        + @torch.library.register_kernel(NS + "::bar", "cpu")
        + def bar_cpu(x):
        +     return x.clone()
        + for name in ("f", "g"):
        +     torch.library.define(f"mylib::{name}", "(Tensor x) -> Tensor")
          """,
    "a function that registers, called": """
        + import torch
        + def register():
        +     torch.library.define("mylib::foo", "(Tensor x) -> Tensor")
          def main():
              print("mylib::foo is run", torch.ops.mylib.foo(torch.ones(3)))
        + register()
          main()
          """,
    "ops written in C++": """
        + from torch.utils.cpp_extension import load_inline
        + SOURCE = "TORCH_LIBRARY(mylib, m) { m.def(\\"foo(Tensor x) -> Tensor\\"); }"
        + load_inline(name="ext", cpp_sources=[SOURCE])
          load_inline(name="other", cpp_sources=["TORCH_LIBRARY(other, m) {}"])
          """,
    "ops that the script loads": """
          import numpy as np
        + import torch
        + torch.ops.load_library("libmylib.so")
        + @torch.library.register_fake("mylib::foo")
        + def _(x):
        +     return x
          """,
    "the module of that name, where the script creates no op": """
        + import mylib
          import einops
          import torch
          """,
    "every module that may, where none has that name": """
          import os
          import numpy as np
          import torch
        + import einops
        + from my_ops import foo
          """,
    "no module where the script creates the op": """
          import einops
        + import torch
        + torch.library.define("mylib::foo", "(Tensor x) -> Tensor")
          """,
    "no op of that namespace": """
          import torch
          torch.library.define("mylib2::foo", "(Tensor x) -> Tensor")
          print("mylib: foo", "a mylib::foo")
          """,
}


def marked(table: str) -> tuple[str, list[str]]:
    """The script, and those of its lines that are marked."""
    lines = textwrap.dedent(table).strip("\n").splitlines()
    indent = min(len(line) - len(line.lstrip(" +")) for line in lines if line.strip())
    return "\n".join(line[indent:] for line in lines) + "\n", [line[indent:] for line in lines if line.startswith("+")]


def sliced(source: str, wanted: set[str], namespaces: set[str]) -> str:
    """The slice, once it has proved to be valid Python of which nothing more can go."""
    text = prelude(source, wanted, namespaces=namespaces)
    compile(text, "<prelude>", "exec")
    assert prelude(text, wanted, namespaces=namespaces) == text
    return text


@pytest.mark.parametrize("table", NAMES.values(), ids=NAMES)
def test_the_marked_lines_define_the_wanted_name(table: str) -> None:
    source, kept = marked(table)
    assert [line for line in sliced(source, {"my_backend"}, set()).splitlines() if line] == kept


@pytest.mark.parametrize("table", OPS.values(), ids=OPS)
def test_the_marked_lines_register_the_ops(table: str) -> None:
    source, kept = marked(table)
    assert [line for line in sliced(source, set(), {"mylib"}).splitlines() if line] == kept


NEATER = {
    "comments, docstrings and blank lines of the module": (
        """
        #!/usr/bin/env python
        # -*- coding: utf-8 -*-
        '''What it does.'''

        import os  # for nothing

        # Half.
        import torch
        SCALE = 2.0  # doubled


        # The backend.
        def my_backend(gm, inputs):
            '''Kept.'''
            return SCALE * torch.ones(1)  # kept


            # kept too
        # gone
        my_backend.a = 1

        # gone
        """,
        """
        import torch

        SCALE = 2.0


        def my_backend(gm, inputs):
            '''Kept.'''
            return SCALE * torch.ones(1)  # kept


            # kept too


        my_backend.a = 1
        """,
    ),
    "only the aliases that are read": (
        """
        import os, numpy as np, torch.fx as fx
        from typing import (
            Any,  # anything
            Callable as Call,
            Dict,
        )
        from torch import nn, \\
            relu
        from a import b
        from a import c
        def my_backend(gm: Any, inputs: Dict):
            return np, fx, nn, relu, b, c
        """,
        """
        import numpy as np
        import torch.fx as fx
        from typing import Any, Dict
        from torch import nn, relu
        from a import b, c


        def my_backend(gm: Any, inputs: Dict):
            return np, fx, nn, relu, b, c
        """,
    ),
    "one of several statements on a line": (
        "import os; import torch; A = 1; B = os.name\ndef my_backend(gm): return A, torch\n",
        "import torch\n\nA = 1\n\n\ndef my_backend(gm): return A, torch\n",
    ),
    "an import that is there for types, or else": (
        """
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            from a import A
        elif len("x"):
            from b import A
        else:
            from c import A
        if TYPE_CHECKING:
            from a import B
        else:
            B = object
        def my_backend(gm: A, inputs: B): ...
        """,
        """
        if len("x"):
            from b import A
        else:
            from c import A
        B = object


        def my_backend(gm: A, inputs: B): ...
        """,
    ),
    "the import from the future, for annotations": (
        """
        from __future__ import annotations, division
        annotations = 3
        def my_backend(gm: Unknown): ...
        """,
        """
        from __future__ import annotations


        def my_backend(gm: Unknown): ...
        """,
    ),
    "no import from the future without annotations": (
        """
        from __future__ import annotations
        x: int = 3
        def my_backend(gm): ...
        """,
        """
        def my_backend(gm): ...
        """,
    ),
    "tabs and foreign line ends": (
        "class A:\r\n\tx = 1\r\n\r\ndef my_backend(gm):\r\n\treturn A\r\n",
        "class A:\n\tx = 1\n\n\ndef my_backend(gm):\n\treturn A\n",
    ),
}


@pytest.mark.parametrize(("source", "expected"), NEATER.values(), ids=NEATER)
def test_the_slice_is_laid_out_plainly(source: str, expected: str) -> None:
    assert sliced(textwrap.dedent(source).lstrip("\n"), {"my_backend"}, set()) == textwrap.dedent(expected).lstrip("\n")


@pytest.mark.parametrize(
    ("source", "wanted"),
    [("", set()), ("import torch\nx = 1\n", set()), ("x = 1\n", {"print"}), ("'''Doc.'''\n# only a comment\n", set())],
)
def test_nothing_wanted_is_nothing_kept(source: str, wanted: set[str]) -> None:
    assert prelude(source, wanted) == ""


def test_a_slice_of_a_plain_script_is_itself() -> None:
    source = "import torch\n\nA = 1\n\n\ndef f(x):\n    return torch.relu(x) + A\n"
    assert prelude(source, {"f"}) == source


def test_wanted_may_be_an_expression() -> None:
    source = "import functools\ndef f(x): ...\nclass P: ...\ny = 1\n"
    assert "y" not in prelude(source, {"functools.partial(f, 1, key='y')", "P()"})
    assert set(prelude(source, {"functools.partial(f, 1)", "P()"}).split()) == set(source.split()) - {"y", "=", "1"}


@pytest.mark.parametrize(
    "source",
    ["x = 1\n", "if __name__ == '__main__':\n    def my_backend(gm): ...\n", "def main():\n    my_backend = 1\n"],
)
def test_a_name_without_a_definition_at_the_top_level_is_an_error(source: str) -> None:
    with pytest.raises(UsageError, match="my_backend is not defined at the top level"):
        prelude(source, {"my_backend"})


def test_a_script_that_is_not_python_is_an_error() -> None:
    with pytest.raises(UsageError, match="cannot be parsed"):
        prelude("def f(:\n", {"f"})


def test_a_name_that_a_star_import_may_hold_is_no_error() -> None:
    assert prelude("from mine import *\n", {"my_backend"}) == "from mine import *\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import ops", ("ops",)),
        ("import os, torch, ops as o, math", ("ops",)),
        ("from ops import f", ("ops",)),
        ("from . import ops\nfrom .pkg import f", ("ops", "pkg")),
        ("import pkg.inner\nimport pkg", ("pkg.inner", "pkg")),
        ("from pkg import inner, f", ("pkg", "pkg.inner")),
        ("from folder import deep", ("folder.deep",)),
        ("import folder", ()),
        ("import folder.none, pkg.none, ops.none", ()),
        ("def f():\n    import pkg\nimport ops", ("pkg", "ops")),
        ("try:\n    import ops\nexcept ImportError:\n    import ops\n", ("ops",)),
        ("import sys", ()),
        ("from ops import *", ("ops",)),
        ("x = 1", ()),
    ],
)
def test_modules_beside_the_script_are_named(text: str, expected: tuple[str, ...], tmp_path: Path) -> None:
    for name in ("ops.py", "sys.py", "pkg/__init__.py", "pkg/inner.py", "folder/deep.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert local_imports(text, tmp_path) == expected
    assert not {"ops", "pkg", "folder"} & set(sys.modules)


def double(x: int, *, by: float = 2.0) -> float:
    return x * by


class Plain:
    """An instance has no state."""

    def __call__(self) -> None: ...

    def method(self) -> None: ...

    @staticmethod
    def static() -> None: ...

    @classmethod
    def made(cls) -> None: ...

    class Nested: ...


class Given:
    def __init__(self, level: int) -> None: ...


class Slotted:
    __slots__ = ("x",)


class Listed(list[int]): ...


class Holder:
    def __init__(self) -> None:
        self.inner = Plain()
        self.inner.mark = 1  # type: ignore[attr-defined]


HOLDER = Holder()
MARKED = Holder()
LAMBDA = lambda graph: None  # noqa: E731
MODULE = types.ModuleType("passes")
MODULE.Nested = Given  # type: ignore[attr-defined]
MODULE.also = MODULE.run = lambda: None  # type: ignore[attr-defined]
MODULE.run.__name__ = "run"
SCOPE: dict[str, object] = {
    "__builtins__": __builtins__,
    "__hidden__": Listed,
    "_": Slotted,
    "alias": double,
    **{value.__name__: value for value in (double, Plain, Holder)},
    "functools": functools,
    "holder": HOLDER,
    "run": LAMBDA,
    "passes": MODULE,
    "_private": MARKED,
    "table": [double],
    "one": 1,
}


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: double, "double"),
        (lambda: LAMBDA, "run"),
        (lambda: Plain, "Plain"),
        (lambda: HOLDER, "holder"),
        (lambda: MARKED, "_private"),
        (lambda: SCOPE["table"], "table"),
        (lambda: HOLDER.inner, "holder.inner"),
        (lambda: Plain.static, "Plain.static"),
        (lambda: Plain.method, "Plain.method"),
        (lambda: Plain.Nested, "Plain.Nested"),
        (lambda: Plain.made, "Plain.made"),
        (lambda: HOLDER.inner.method, "holder.inner.method"),
        (lambda: Plain().method, "Plain().method"),
        (lambda: Given, "passes.Nested"),
        (lambda: MODULE.run, "passes.run"),
        (lambda: Plain(), "Plain()"),
        (lambda: Plain.Nested(), "Plain.Nested()"),
        (lambda: functools.partial, "functools.partial"),
        (lambda: functools.partial(double), "functools.partial(double)"),
        (lambda: functools.partial(double, 1, by=-0.5), "functools.partial(double, 1, by=-0.5)"),
        (lambda: functools.partial(Plain.static, [1, "a"]), "functools.partial(Plain.static, [1, 'a'])"),
        (
            lambda: functools.partial(Plain().method, k={"b": (None,)}),
            "functools.partial(Plain().method, k={'b': (None,)})",
        ),
        (lambda: functools.partial(double, by=float("inf")), None),
        (lambda: functools.partial(double, Plain()), None),
        (lambda: functools.partial(lambda: None), None),
        (lambda: lambda: None, None),
        (lambda: Given(1), None),
        (lambda: Holder(), None),
        (lambda: Slotted(), None),
        (lambda: Slotted, None),
        (lambda: Listed(), None),
        (lambda: object(), None),
        (lambda: [double], None),
        (lambda: print, None),
        (lambda: 1, None),
        (lambda: None, None),
        (lambda: "double", None),
    ],
)
def test_an_object_is_named_as_the_script_reaches_it(make: Callable[[], object], expected: str | None) -> None:
    obj = make()
    text = expression_for(obj, SCOPE)
    assert text == expected
    if text is not None and text.isidentifier():
        assert eval(text, dict(SCOPE)) is obj


def test_a_partial_is_not_named_where_the_script_has_no_partial() -> None:
    assert expression_for(functools.partial(double), {"double": double}) is None
    assert expression_for(functools.partial(double), {"double": double, "p": functools.partial}) == "p(double)"
