"""Queries that break a batch, by design: what units do with them is replaced, all else is the real thing.

    BREAKS_COMPILED    cannot be compiled
    BREAKS_ANSWERED    cannot be answered once a tuple of batch BREAKING_BATCH or later is among its candidates

Both are told by the name of a column of the SELECT.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from watersmeet.registry.shared import fan_out
from watersmeet.registry.shared.compiled import Compiled

BREAKS_COMPILED, BREAKS_ANSWERED = "compiled!", "answered!"
BREAKING_BATCH = 3


def broken(column: str) -> str:
    return f"SELECT r.id AS `{column}`, s.id AS y FROM r, s WHERE r.k = s.k WINDOW = 5 SECONDS"


@contextmanager
def breaking(first_id: int) -> Iterator[None]:
    """While it lasts, such queries break; ids from `first_id` on are those of the breaking batch."""
    become, held = Compiled._become, fan_out._filter_held

    def compile_or_break(self: Compiled, queries: Mapping[str, Any]) -> None:
        if any(o.name == BREAKS_COMPILED for q in queries.values() for o in q.query.outputs):
            raise ValueError("compiled by nobody")
        become(self, queries)

    def answer_or_break(block: Any, found: Any) -> Any:
        asked = {o.name for n in set(found.query.tolist()) for o in block.queries[n].query.outputs}
        if BREAKS_ANSWERED in asked and max(found.taken.column("r", "id").to_pylist()) >= first_id:
            raise IndexError("answered by nobody")
        return held(block, found)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Compiled, "_become", compile_or_break)
        patch.setattr(fan_out, "_filter_held", answer_or_break)
        yield
