"""Quotas of a registry: what one registered query may take.

Invariant: sizes are at most those that every engine can compile. Queries are compiled together, and arrays are as wide as the widest query of a block, so one
that is very wide costs all the others: a self join of 100 streams took 1.5 GB of a worker's memory; with 16 it is some tens of MB.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from watersmeet.errors import OptionError

MOST_STREAMS = 16
"""Aliases in FROM."""
MOST_COLUMNS = 256
"""Columns of the SELECT."""
MOST_CONDITIONS = 256
"""Equalities, constants and other conditions together."""


@dataclass(frozen=True)
class Quotas:
    """What one registered query may take. A query that is larger is refused by `add`; one that takes more answers or state is suspended.

    >>> Quotas(answers=1_000_000).streams
    16
    >>> Quotas(streams=99)
    Traceback (most recent call last):
    watersmeet.errors.OptionError: Quotas(streams=99): give a whole number from 1 to 16
    """

    streams: int = MOST_STREAMS
    """Aliases in FROM."""
    columns: int = MOST_COLUMNS
    """Columns of the SELECT."""
    conditions: int = MOST_CONDITIONS
    """Equalities, constants and other conditions together."""
    answers: int = 10_000_000
    """Answers in one micro-batch, before DISTINCT."""
    combinations: int = 1_000_000_000
    """Combinations of tuples that its join makes in one micro-batch, whether its other conditions hold or not, and tuples that one step of the join tries; under engine 'rjoin', tuples that its rewritten queries try at one unit in one round."""
    rewritten_bytes: int = 1 << 30
    """Memory of the rewritten queries at one unit in one round, of all queries together, under engine 'rjoin': beyond it, the query that has the most is suspended."""
    state: int | None = None
    """Stored tuples that its windows still reach, and rows that DISTINCT keeps for it; None: any number."""

    def __post_init__(self) -> None:
        for one in fields(self):
            value, most = getattr(self, one.name), _MOST.get(one.name, _NO_LIMIT)
            if value is None and one.name == "state":
                continue
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
                up_to = "1 on" if most == _NO_LIMIT else f"1 to {most}"
                raise OptionError(f"Quotas({one.name}={value!r}): give a whole number from {up_to}")


_MOST = {"streams": MOST_STREAMS, "columns": MOST_COLUMNS, "conditions": MOST_CONDITIONS}
_NO_LIMIT = 2**62
DEFAULT_QUOTAS = Quotas()
