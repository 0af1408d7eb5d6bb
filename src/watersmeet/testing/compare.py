"""What was expected and what was found, in lines to be read.

Invariant: a comparison either holds or raises an AssertionError that shows every difference, and both sides of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from watersmeet.errors import DataError
from watersmeet.testing.values import make_table

_MOST_LINES = 40


def compare_rows(found: Any, expected: Sequence[Sequence[Any]], where: str) -> None:
    """Compare the rows of a table with those expected, as bags.

    >>> from watersmeet.testing.values import table
    >>> compare_rows(table("id int", [(1,), (2,)]), [(2,), (3,)], "after batch 0")
    Traceback (most recent call last):
    AssertionError: after batch 0 the answers are not those expected; columns: id
      missing      (3,)
      unexpected   (1,)
      as expected  (2,)
    """
    wanted = make_table(found.schema, expected, "those expected")
    mine, its = (Counter(map(_Shown, zip(*_values(t), strict=True) if t.num_columns else ())) for t in (wanted, found))
    if mine == its:
        return
    lines = [*_lines("missing", mine - its), *_lines("unexpected", its - mine), *_lines("as expected", mine & its)]
    more = [f"  ... and {len(lines) - _MOST_LINES} more"] if len(lines) > _MOST_LINES else []
    columns = ", ".join(found.column_names)
    raise AssertionError(
        "\n".join([f"{where} the answers are not those expected; columns: {columns}", *lines[:_MOST_LINES], *more])
    )


def _values(table: Any) -> list[list[Any]]:
    return [column.to_pylist() for column in table.columns]


class _Shown:
    """A row that can be counted and sorted, whatever its values: NaN equals NaN."""

    def __init__(self, row: tuple[Any, ...]) -> None:
        self.text = repr(tuple(0.0 if isinstance(v, float) and v == 0 else v for v in row))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Shown) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


def _lines(title: str, rows: Counter[_Shown]) -> list[str]:
    shown = sorted((row.text, n) for row, n in rows.items())
    return [f"  {title:<12} {text}{f'   {n} times' if n > 1 else ''}" for text, n in shown]


def compare_named(what: str, found: Mapping[str, Any], expected: Mapping[str, Any], nothing: Any, where: str) -> None:
    """Compare values by name; a name that is not expected has `nothing`.

    >>> compare_named("late rows", {"a": 2, "b": 0}, {"a": 1}, 0, "after batch 0")
    Traceback (most recent call last):
    AssertionError: after batch 0 the late rows are not those expected
      a  expected 1, found 2
      b  as expected, 0
    """
    unknown = [name for name in expected if name not in found]
    if unknown:
        raise DataError(f"{what}: there is no {unknown[0]!r}; there are {', '.join(found)}")
    wanted = {name: expected.get(name, nothing) for name in found}
    if wanted == dict(found):
        return
    lines = [f"{where} the {what} are not those expected"]
    for name, value in found.items():
        same = wanted[name] == value
        lines.append(f"  {name}  {f'as expected, {value}' if same else f'expected {wanted[name]}, found {value}'}")
    raise AssertionError("\n".join(lines))
