"""Programs whose values are let go of early."""

from __future__ import annotations

import ast

import pytest

from minify.release import releasing

PROGRAMS = {
    "after the last reader": (
        "def fn(x):\n    a = x + 1\n    b = a * 2\n    return b",
        "def fn(x):\n    a = x + 1\n    b = a * 2\n    del a\n    return b",
    ),
    "a name that stands for another": (
        "def fn(x):\n    a = x + 1\n    a += 1\n    b = a\n    c = b * 2\n    return c",
        "def fn(x):\n    a = x + 1\n    a += 1\n    b = a\n    del a\n    c = b * 2\n    del b\n    return c",
    ),
    "inside and after a block": (
        "def fn(x):\n    with on():\n        a = x + 1\n        b = a + x\n    c = b * 2\n    return c",
        "def fn(x):\n    with on():\n        a = x + 1\n        b = a + x\n        del a\n    c = b * 2\n    del b\n    return c",
    ),
    "not what a nested function reads": (
        "def fn(x):\n    a = x + 1\n\n    def body(y):\n        return y + a\n    b = body(x)\n    return b",
        "def fn(x):\n    a = x + 1\n\n    def body(y):\n        return y + a\n    b = body(x)\n    return b",
    ),
    "a result that nobody reads": (
        "def fn(x):\n    a = x + 1\n    return x",
        "def fn(x):\n    a = x + 1\n    del a\n    return x",
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_value_goes_with_its_last_reader(name: str) -> None:
    before, after = PROGRAMS[name]
    assert ast.unparse(releasing(ast.parse(before), "fn")) == after


def test_other_functions_stay_as_they_are() -> None:
    text = "def other(x):\n    a = x\n    return 1\n\ndef fn(x):\n    return x"
    assert ast.unparse(releasing(ast.parse(text), "fn")) == ast.unparse(ast.parse(text))
