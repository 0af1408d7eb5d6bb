"""A registry's queries as `list()` shows them: those that are registered, then what was refused, has failed or was suspended lately.

Invariant: an entry is made of what the registry says of a query, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from watersmeet.plan.finish import how_often
from watersmeet.query.window import UNBOUNDED
from watersmeet.registry.shared.compiled import unit_of_query
from watersmeet.registry.subscription import NOT_YET, Registered
from watersmeet.registry.versions import RegistryState
from watersmeet.runtime.progress import QueryFigures
from watersmeet.runtime.subscriptions.figures import FigureBook

_SAID: dict[str, Literal["refused", "failed", "suspended"]] = {
    "refuse": "refused",
    "fail": "failed",
    "suspend": "suspended",
}


@dataclass(frozen=True)
class Entry:
    """A query as `list()` shows it."""

    id: str
    sql: str
    state: Literal["waiting", "running", "refused", "failed", "suspended"]
    """Waiting: it takes effect in the next batch. Failed: it broke a batch, and is not answered from that batch on. Suspended: the same, because it took more than its quota."""
    since: int | None = None
    """The batch from which on it is answered."""
    reason: str | None = None
    """Why it was refused or suspended, or has failed."""
    unbounded: bool = False
    """Whether some pair of its streams has no window: then their tuples are kept for ever."""
    distinct: str | None = None
    """How often a row is answered, if the query is DISTINCT."""
    version: int | None = None
    """The version of the registry that added it, as its answers have it."""
    backfill: bool = False
    """Whether it was answered from stored tuples first."""
    unit: int | None = None
    """The unit that answered it in the latest batch; None before the first, and where the job does not run here."""
    figures: QueryFigures | None = None
    """What it did and took since the job started; None before the first batch, and where the job does not run here."""


def list_entries(state: RegistryState, book: FigureBook | None) -> Iterator[Entry]:
    """All registered queries with their figures, then what else is said of ids."""
    for known in state.queries.values():
        yield _show(known, None if known.effect == NOT_YET else book)
    for said in state.said.values():
        yield Entry(said["id"], said["sql"], _SAID[said["action"]], reason=said["reason"])


def _show(known: Registered, book: FigureBook | None) -> Entry:
    waits = known.effect == NOT_YET
    return Entry(
        known.id,
        known.sql,
        "waiting" if waits else "running",
        None if waits else known.effect,
        unbounded=any(hi >= UNBOUNDED for row in known.query.template.bounds for hi in row),
        distinct=how_often(known.query.bucket_us) if known.query.distinct else None,
        version=known.version,
        backfill=known.backfill,
        unit=unit_of_query(known, book.units) if book is not None and book.units else None,
        figures=None if book is None else book.find(known),
    )
