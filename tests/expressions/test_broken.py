"""Rows without a value in an expression: what DuckDB's TRY finds in one query is what fails row by row, and what it misses is found by halves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.expressions import broken
from watersmeet.expressions.broken import find_broken, find_true
from watersmeet.expressions.evaluator import attempt

TABLE = pa.table({"z": [3, 0, None, 5, 0, 127, 1], "s": ["1", "x", None, "ERROR('y')", "7", "", "2"]})
DIVISION = "CASE WHEN z = 0 THEN ERROR('division by zero') ELSE CAST(100 AS DOUBLE) / z END"
TEXTS = {
    DIVISION: {1, 4},
    f"coalesce({DIVISION}, 1) > 30": {1, 4},
    f"CASE WHEN s = 'x' THEN 1 ELSE {DIVISION} END": {4},
    f"s = 'ERROR(''y'')' OR {DIVISION} > 3": {1, 4},
    "CAST(s AS INTEGER)": {1, 3, 5},
    "CAST(z AS TINYINT) + CAST(1 AS TINYINT)": {5},
    f"CAST(s AS INTEGER) + {DIVISION}": {1, 3, 4, 5},
    "z + 1": set(),
}


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("catches", [True, False], ids=["by TRY", "by halves"])
def test_what_fails_row_by_row_is_found(monkeypatch: pytest.MonkeyPatch, text: str, catches: bool) -> None:
    alone = {n for n in range(TABLE.num_rows) if attempt(TABLE.slice(n, 1), text, "UTC") is None}
    if not catches:
        monkeypatch.setattr(broken, "_catch", lambda table, *_: np.zeros(table.num_rows, bool))
    assert set(np.flatnonzero(find_broken(TABLE, text, "UTC"))) == alone
    # Whether OR looks at its second operand where the first is true is the evaluator's own choice.
    assert alone == TEXTS[text] or " OR " in text


def test_the_others_have_their_values() -> None:
    holds, breaks = find_true(TABLE, f"{DIVISION} > 30", "a condition", "UTC")
    assert np.flatnonzero(holds).tolist() == [0, 6]
    assert np.flatnonzero(breaks).tolist() == [1, 4]


def test_a_hundred_broken_rows_take_three_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def count(table: pa.Table, text: str, timezone: str) -> Any:
        asked.append(text)
        return attempt(table, text, timezone)

    monkeypatch.setattr(broken, "attempt", count)
    table = pa.table({"z": [n % 50 for n in range(5_000)]})
    assert find_true(table, f"{DIVISION} > 30", "a condition", "UTC")[1].sum() == 100
    assert len(asked) == 3
