"""Registered queries that break a batch: found, struck out, and the batch is run again without them.

    run the batch           fails: a unit cannot answer its queries
    run it with the first n - 1, n - 2, n - 4, ... queries, in the order in which they were added, until it succeeds; then halve
                            the first k - 1 succeed, the first k fail: the k-th is the culprit
    strike it out           first in the registry, then in the intent: each is one file that is there or not
    run the batch again     there may be another one

Wherever the process dies, the next one finds the failure in the registry and strikes the query out of the intent before it runs the batch.

Where several queries fail only together, the youngest of them is struck out: a query never stops those that were there before it.

Invariant: an error that no query explains is raised as it is, and nobody is blamed: errors of the machine, at whatever run they come,
errors that remain without any query, and errors that do not come again. The other queries' answers are those of a run that never had the culprit from this batch on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from watersmeet.errors import BrokenQueryError
from watersmeet.runtime.failures import from_worker

T = TypeVar("T")
Queries = Mapping[str, Any]
"""What an intent says of a batch's queries."""
STRUCK = "struck"
"""In an intent: the queries of its version that the batch does not answer."""


class Striking(Protocol):
    """A registry from which queries can be struck out."""

    def ids(self, queries: Queries) -> Sequence[str]:
        """The queries of a batch, in the order in which they were added."""

    def strike(self, queries: Queries, id: str, reason: str) -> dict[str, Any]:
        """Say that a query has failed, durably; the batch without it."""


def run_without_culprits(
    registry: Striking,
    queries: Queries,
    run: Callable[[Queries], T],
    probe: Callable[[Queries], object],
    amend: Callable[[Queries], object],
) -> T:
    """Run a batch; as long as a query breaks it, strike that one out, `amend` the intent and run again.

    `probe` runs it with some of its queries and leaves no trace.
    """
    while True:
        try:
            return run(queries)
        except Exception as error:
            found = _culprit(registry.ids(queries), queries, probe) if fault_of(error) is not None else None
            if found is None:
                raise
        queries = registry.strike(queries, *found)
        amend(queries)


def fault_of(error: Exception) -> str | None:
    """What is wrong with some query, if that is what an error says; None if the machine failed."""
    found = error if isinstance(error, BrokenQueryError) else from_worker(str(error), BrokenQueryError)
    return None if found is None else str(found)


def _culprit(ids: Sequence[str], queries: Queries, probe: Callable[[Queries], object]) -> tuple[str, str] | None:
    """The query that breaks a batch, and the reason; None if the batch fails without any."""
    reasons: dict[int, str] = {}

    def fails(count: int) -> bool:
        struck = [*queries.get(STRUCK, ()), *ids[count:]]
        try:
            probe({**queries, STRUCK: struck} if struck else queries)
        except Exception as error:
            reason = fault_of(error)
            if reason is None:
                raise
            reasons[count] = reason
            return True
        return False

    last = first_to_fail(len(ids), fails) if ids else None
    if last is None or not fails(last):  # once more: what comes and goes is not blamed
        return None
    return ids[last - 1], reasons[last]


def first_to_fail(count: int, fails: Callable[[int], bool]) -> int | None:
    """The least number of queries that fail; all of them do. None if it fails without any.

    >>> tried = []
    >>> first_to_fail(1000, lambda n: tried.append(n) or n >= 998), tried
    (998, [999, 997, 998])
    """
    low, high, step = 0, count, 1
    while high - step > 0:
        if not fails(high - step):
            low = high - step
            break
        high, step = high - step, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fails(middle) else (middle, high)
    return None if low == 0 and fails(0) else high
