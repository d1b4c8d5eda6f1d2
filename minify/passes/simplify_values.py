"""Replace real data by a rule: zeros, ones, a range, seeded random numbers, one number everywhere.

May lose: the values that decide (an inf, a -0.0, a large magnitude, equal elements, a sorted index). Integers stay in the
range that was recorded, as they may index something. Inputs that lie in one storage change together.
"""

from __future__ import annotations

import dataclasses
import math

from minify.case import VALUE_RANK, Case, Input, Recipe, Recorded, Value, canonical, tensor_inputs
from minify.passes.contract import Pass, Site

EVERY = "every input"
SEED = "seed"
SEEDS = (1, 2, 3)  # a failure that half of all numbers show needs no recorded ones
LEVELS = ("zeros", "ones", "arange", "randn")
SPECIAL = (math.inf, -math.inf, math.nan, -0.0)
BITS = Recipe("randint", (0, 2))


def find(case: Case) -> tuple[Site, ...]:
    """Every input at once, from the plainest rule to the least plain; then each input by itself, in the same order; then random
    numbers of other seeds in place of all recorded ones."""
    offers = {owner: simpler(members) for owner, members in storage_groups(case).items()}
    changed = {level: sum(at_level(level, recipes) is not None for recipes in offers.values()) for level in LEVELS}
    sites: list[Site] = [(EVERY, level) for level in LEVELS if changed[level] > 1]
    sites += [(owner, recipe) for owner, recipes in offers.items() for recipe in recipes]
    if any(Recipe("randn") in recipes for recipes in offers.values()):
        sites += [(SEED, seed) for seed in SEEDS if seed != case.settings.seed]
    return tuple(sites)


def rewrite(case: Case, sites: tuple[Site, ...]) -> Case:
    chosen: dict[str, Recipe] = {}
    groups = storage_groups(case)
    settings = case.settings
    for target, rule in sites:
        if isinstance(rule, int):
            settings = dataclasses.replace(settings, seed=rule)
            offers = {owner: simpler(members) for owner, members in groups.items()}
            chosen |= {owner: Recipe("randn") for owner, recipes in offers.items() if Recipe("randn") in recipes}
            continue
        if isinstance(rule, Recipe):
            chosen[str(target)] = rule
            continue
        for owner, members in groups.items():
            recipe = at_level(str(rule), simpler(members))
            if recipe is not None:
                chosen[owner] = recipe
    recipes = {item.name: chosen[owner] for owner in chosen for item in groups[owner]}
    inputs = (
        dataclasses.replace(item, value=recipes[item.name])
        if isinstance(item, Input) and item.name in recipes
        else item
        for item in case.inputs
    )
    return dataclasses.replace(case, inputs=tuple(inputs), settings=settings)


def at_level(level: str, recipes: tuple[Recipe, ...]) -> Recipe | None:
    """The rule of kind `level`, else random numbers, so that an index stays one while floats become zeros."""
    return next((recipe for kind in (level, "randn", "randint") for recipe in recipes if recipe.kind == kind), None)


def storage_groups(case: Case) -> dict[str, tuple[Input, ...]]:
    """Inputs that share a storage, under the name of the first. Zero tensors have no values to change."""
    owners: dict[int, str] = {}
    groups: dict[str, tuple[Input, ...]] = {}
    for item in tensor_inputs(case):
        if "zerotensor" not in item.meta.flags:
            owner = owners.setdefault(item.meta.storage, item.name)
            groups[owner] = (*groups.get(owner, ()), item)
    return groups


def simpler(members: tuple[Input, ...]) -> tuple[Recipe, ...]:
    """The rules plainer than what a storage holds now, the plainest first, single numbers last."""
    if len({item.meta.dtype for item in members}) > 1:
        return ()
    rank = min(value_rank(item.value) for item in members)
    rules = {canonical(recipe): recipe for recipe in offered(members[0])}
    return tuple(recipe for recipe in rules.values() if VALUE_RANK[recipe.kind] < rank and not is_zeros_or_ones(recipe))


def is_zeros_or_ones(recipe: Recipe) -> bool:
    """Whether `full` has a plainer name; not so for -0.0."""
    return recipe.kind == "full" and canonical(recipe.args[0]) in ("0", "1", "0.0", "1.0")


def value_rank(value: Value) -> int:
    return VALUE_RANK.get(value.kind, 9) if isinstance(value, Recipe) else 10


def offered(item: Input) -> tuple[Recipe, ...]:
    """All rules that make sense for the dtype and the known range of `item`. Special numbers are for data that may hold some;
    in place of a rule without any they would only bring in another failure."""
    dtype, (low, high) = item.meta.dtype, value_range(item)
    if dtype == "bool":
        return (Recipe("zeros"), Recipe("ones"), BITS)
    if dtype.startswith("complex"):
        return (Recipe("ones"), Recipe("randn"))
    if dtype.startswith(("int", "uint")):
        return integer_rules(item, low, high)
    plain = [Recipe("zeros"), Recipe("ones"), Recipe("arange"), Recipe("randn")]
    if low is not None and low >= 0:
        plain.append(Recipe("rand"))
    ends = [end for end in (low, high) if end is not None]
    special = SPECIAL if isinstance(item.value, Recorded) else ()
    return (*plain, *(Recipe("full", (number,)) for number in (*ends, *special)))


def integer_rules(item: Input, low: float | None, high: float | None) -> tuple[Recipe, ...]:
    """Rules whose values stay from `low` to `high`; without a known range only the smallest numbers are tried."""
    if low is None or high is None:
        return (Recipe("zeros"), Recipe("ones"), BITS)
    first, last = int(low), int(high)
    rules = [Recipe("zeros")] if last >= 0 else []  # 0 will index whatever a larger number does
    rules += [Recipe("ones")] if first <= 1 <= last else []
    if first <= 0 and item.meta.storage_size - 1 <= last:
        rules.append(Recipe("arange"))
    return (*rules, Recipe("randint", (first, last + 1)), Recipe("full", (first,)), Recipe("full", (last,)))


def value_range(item: Input) -> tuple[float | None, float | None]:
    """The smallest and largest element, as far as they are known."""
    value = item.value
    if isinstance(value, Recorded):
        return value.low, value.high
    if isinstance(value, Recipe):
        if value.kind == "randint":
            low, after = value.args
            return (low, after - 1) if isinstance(low, int) and isinstance(after, int) else (None, None)
        if value.kind == "arange":
            return 0, item.meta.storage_size - 1
        if value.kind in ("zeros", "ones"):
            return (0, 0) if value.kind == "zeros" else (1, 1)
    return None, None


SIMPLIFY_VALUES = Pass("values", find, rewrite, alternatives=True, polish=True)
