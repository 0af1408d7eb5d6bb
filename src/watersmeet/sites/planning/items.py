"""Items of letters as plans are priced by them: who sends what to whom, how much of it, and a name that is the same in every plan.

Invariant: an item's kind is what letters call it, so what was expected can be compared with what was counted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from watersmeet.sites.planning.letters import Step
from watersmeet.sites.planning.model import Algorithm

RESULTS = "results"
"""The item of letters that has results."""
_BLOOM = frozenset(a for a in Algorithm if a.value.startswith("SMB"))


class Item(NamedTuple):
    """An item of letters from one site to another, and how many bytes of it are expected per second."""

    sender: str
    receiver: str
    kind: str
    """As letters name it."""
    name: str
    """Of the same thing in any plan: the algorithm, then the rest."""
    bytes: float


def list_own_items(step: Step, how: Algorithm, ends: tuple[str, str], number: str, path: str) -> Iterator[Item]:
    """What a one-way join ships for itself, between the source and the destination; `number` is that of its channels."""
    for verb, size, there in (("rows", step.rows, True), ("ask", step.asked, True), ("want", step.wanted, False)):
        if size:
            yield Item(*(ends if there else ends[::-1]), f"{verb} {number}", f"{how.value} {verb}: {path}", size)


def list_shared_items(
    step: Step, how: Algorithm, ends: tuple[str, str], stream: int, classes: Collection[int], place: str
) -> Iterator[Item]:
    """What it has of a stream sent from its home to the source, which serves other joins there, too."""
    if step.copied:
        yield Item(*ends, f"@{stream} copy", f"{how.value} copy: {place}", step.copied)
    if step.told:
        what = "filter" if how in _BLOOM else "values"
        kind = f"@{stream} {what} {','.join(map(str, classes))}"
        yield Item(*ends, kind, f"{what}: {place} {tuple(classes)}", step.told)
