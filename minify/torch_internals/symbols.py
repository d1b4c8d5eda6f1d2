"""Fake tensors whose sizes are symbols, and what torch takes for granted of these while it computes shapes."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import torch

from minify import sizes
from minify.sizes import Quotient, Sum


class SymbolicShapes:
    """Makes symbols of sizes, each one of its own however equal their numbers are, and keeps what torch found to hold of them."""

    def __init__(self) -> None:
        symbolic = importlib.import_module("torch.fx.experimental.symbolic_shapes")
        fake = importlib.import_module("torch._subclasses.fake_tensor")
        self._shapes = symbolic.ShapeEnv(duck_shape=False)
        self._mode = fake.FakeTensorMode(shape_env=self._shapes, allow_non_fake_inputs=True)
        self._mode.cache_enabled = False  # an answer from the cache would leave out what was checked for it
        self._dynamic = symbolic.DimDynamic.DYNAMIC
        self._names: dict[Any, str] = {}

    def symbol(self, name: str, number: int) -> torch.SymInt:
        """A size that is `number` (at least 2) now."""
        source = importlib.import_module("torch._dynamo.source").ConstantSource(name)
        symbol = self._shapes.create_symbol(number, source, dynamic_dim=self._dynamic, constraint_dim=None)
        self._names[symbol] = name
        return self._shapes.create_symintnode(symbol, hint=number, source=source)  # type: ignore[no-any-return]

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Where tensors are fake: they have a shape and no memory. Rules written in Python go first, since many of those in C++
        take nothing but numbers (padding, upsampling)."""
        with self._mode, importlib.import_module("torch._dispatch.python").enable_python_dispatcher():
            yield

    def found(self) -> tuple[tuple[Sum, ...], tuple[frozenset[str], ...]]:
        """The sums that have to be 0, and the names that other conditions hold against each other."""
        equations, others = [], []
        for condition in self._conditions():
            total = self._difference(condition) if condition.func.__name__ == "Equality" else None
            if total is None:
                others.append(frozenset(self._names[s] for s in condition.free_symbols if s in self._names))
            else:
                equations.append(total)
        return tuple(equations), tuple(others)

    def _conditions(self) -> Iterator[Any]:
        """Each guard's parts. That two sizes differ was asked for, most likely, and nothing hangs on it."""
        for guard in self._shapes.guards:
            whole = guard.expr
            for part in whole.args if whole.func.__name__ == "And" else (whole,):
                if part.func.__name__ != "Unequality":
                    yield part

    def _difference(self, equality: Any) -> Sum | None:
        left, right = map(self._sum, equality.args)
        return None if left is None or right is None else sizes.add(left, sizes.multiply(sizes.number(-1), right))

    def _sum(self, expression: Any) -> Sum | None:
        """A sympy expression as a sum; None where it is made of other things than products and divisions."""
        found: list[Sum] = []
        for product, coefficient in expression.expand().as_coefficients_dict().items():
            factors = self._product(product)
            if factors is None or not coefficient.is_Rational:
                return None
            found.append(sizes.multiply(sizes.number(Fraction(int(coefficient.p), int(coefficient.q))), factors))
        return sizes.add(*found)

    def _product(self, product: Any) -> Sum | None:
        found = sizes.number(1)
        for base, exponent in product.as_powers_dict().items():
            factor = self._factor(base)
            if factor is None or not exponent.is_Integer or exponent < 0:
                return None
            found = sizes.multiply(found, sizes.power(factor, int(exponent)))
        return found

    def _factor(self, base: Any) -> Sum | None:
        if base.is_Integer:
            return sizes.number(int(base))
        if base.is_Symbol:
            return sizes.atom(self._names[base]) if base in self._names else None
        if base.func.__name__ not in ("FloorDiv", "CleanDiv"):
            return None
        dividend, divisor = map(self._sum, base.args)
        return None if dividend is None or divisor is None else sizes.atom(Quotient(dividend, divisor))
