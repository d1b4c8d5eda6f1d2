"""Stable releases of torch: their names, their order, and those that lie between two."""

from __future__ import annotations

import dataclasses
import re
from bisect import bisect_left
from collections.abc import Iterable

from minify.errors import UsageError

_NAME = re.compile(r"v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?(?:\+[\w.]+)?")


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Release:
    """One stable release. Builds of it (`2.13.0+cpu`) are not told apart: they are of one source."""

    major: int
    minor: int
    patch: int = 0

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"

    @property
    def tag(self) -> str:
        """Its tag in torch's repository."""
        return f"v{self}"


def parsed(text: str) -> Release | None:
    """None for what names no stable release: a candidate, a nightly, a post-release."""
    found = _NAME.fullmatch(text.strip())
    return Release(*(int(number or 0) for number in found.groups())) if found else None


def named(text: str) -> Release:
    """The release a user names. Raises UsageError."""
    found = parsed(text)
    if found is None:
        raise UsageError(f"{text!r} is no stable release of torch", "give one such as 2.11 or 2.11.0")
    return found


def between(good: Release, bad: Release, listed: Iterable[Release]) -> tuple[Release, ...]:
    """Those of `listed` from `good` to `bad`, in order. Raises UsageError where `bad` does not come after `good`, or one of the
    two is not listed."""
    if good == bad:
        raise UsageError(f"--good and --bad are both {good}", "give two releases")
    if good > bad:
        raise UsageError(
            f"--good {good} is later than --bad {bad}",
            "give the older one as --good: what is looked for is the first release that shows the bug",
        )
    known = sorted(set(listed))
    for option, end in (("--good", good), ("--bad", bad)):
        if end not in known:
            place = bisect_left(known, end)
            near = known[max(0, min(place - 2, len(known) - 4)) :][:4]
            there = f"there are {', '.join(map(str, near))}" if near else "there is none at all"
            raise UsageError(f"no torch {end} for {option} is to be had for this Python: {there}", "give one of those")
    return tuple(one for one in known if good <= one <= bad)
