"""Rounds of a program in this process, without Spark: what `runtime.rounds.supersteps` does in jobs.

Invariant: as there: all tuples enter before round 0; mail is read in the next round; a unit without mail is not run, unless the
program wakes all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from watersmeet.units.program import Mail, Program

Inbox = dict[str, list[pa.Table]]
Turn = Callable[[int, int, Inbox], Iterator["pa.Table | Mail"]]
"""(round, unit, inbox): one unit's turn."""


def play(program: Program, units: int, entering: Iterable[Mail], turn: Turn) -> Iterator[pa.Table]:
    """All rounds of one batch; the results."""
    waiting: dict[int, dict[int, Inbox]] = {0: {unit: {} for unit in range(units)}} if program.wakes else {}
    _put(waiting, entering, 0)
    while waiting:
        number = min(waiting)
        for unit, inbox in sorted(waiting.pop(number).items()):
            for item in turn(number, unit, inbox):
                if isinstance(item, Mail):
                    _put(waiting, [item], number + 1)
                else:
                    yield item


def _put(waiting: dict[int, dict[int, Inbox]], mails: Iterable[Mail], number: int) -> None:
    for mail in mails:
        at = number if mail.round is None else mail.round
        waiting.setdefault(at, {}).setdefault(mail.to, {}).setdefault(mail.kind, []).append(mail.table)
