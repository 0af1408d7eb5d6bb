"""`watersmeet bench alerts --registration 100`: the CPU time of registering queries whose form nobody has registered before.

    one stream      conditions and computed columns of a stream           shared with others
    join            two to four streams by equalities, with conditions    shared with others
    absence         LEFT, SEMI and ANTI joins                             shared with others
    aggregate       GROUP BY window(...) with HAVING                      a dataflow of its own
    apart           bands, inequalities, ROWS, as-of and FULL joins       a dataflow of its own

Texts that differ in constants alone are of one form, and only the first of them costs what is measured here. So every text has a form of its own. Some of each kind are registered before,
as in a process that runs, and many alerts are registered already.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

import numpy as np
import pyarrow as pa
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

import watersmeet as wm
from watersmeet.sql.forms import cut_form

WARM_UP = 10
"""Queries of each kind that are registered before."""
_TS = pa.timestamp("us", tz="UTC")
_NUMBERS: dict[str, tuple[str, ...]] = {
    "orders": ("user", "total", "quantity", "price"),
    "payments": ("user", "amount", "order_id"),
    "refunds": ("user", "reason", "order_id"),
    "clicks": ("user", "seconds", "depth"),
}
_TEXTS: dict[str, tuple[str, ...]] = {
    "orders": ("country", "item"), "payments": ("method",), "refunds": ("note",), "clicks": ("page", "agent"),
}  # fmt: skip
_DOUBLES = ("total", "amount", "seconds", "price")
Sources = dict[str, str]
"""Streams by alias."""


@dataclass(frozen=True)
class Timed:
    """CPU times of registering the queries of one kind, in milliseconds."""

    kind: str
    queries: int
    median: float
    p90: float
    worst: float


def make_streams() -> dict[str, wm.Stream]:
    """The streams, without tuples."""
    out = {}
    for name, numbers in _NUMBERS.items():
        kinds = {c: pa.float64() if c in _DOUBLES else pa.int64() for c in numbers}
        schema = pa.schema({"id": pa.int64(), **kinds, **dict.fromkeys(_TEXTS[name], pa.string()), "ts": _TS})
        out[name] = wm.Stream(schema.empty_table(), time="ts")
    return out


def write_query(chance: Random, kind: str) -> str:
    """A query of a kind."""
    return KINDS[kind](chance)


def write_queries(chance: Random, kind: str, many: int, seen: set[str | None]) -> Iterator[str]:
    """So many queries of a kind, none of a form that was seen."""
    while many:
        sql = write_query(chance, kind)
        cut = cut_form(sql)
        form = None if cut is None else cut[0]
        if form not in seen:
            seen.add(form)
            many -= 1
            yield sql


def measure(many: int, seed: int, registered: dict[str, str]) -> list[Timed]:
    """Register so many queries of each kind, beside others."""
    subs, chance = wm.local.subscriptions(make_streams()), Random(seed)
    seen: set[str | None] = {None}
    subs.add_all(registered)
    for kind in KINDS:
        for sql in write_queries(chance, kind, WARM_UP, seen):
            subs.add(sql)
    found = {kind: [_time(subs, sql) for sql in write_queries(chance, kind, many, seen)] for kind in KINDS}
    return [
        Timed(kind, many, float(np.median(ms)), float(np.percentile(ms, 90)), max(ms)) for kind, ms in found.items()
    ]


def _time(subs: wm.local.LocalSubscriptions, sql: str) -> float:
    begin = time.process_time()
    subs.add(sql)
    return 1_000 * (time.process_time() - begin)


def show(console: Console, found: list[Timed], registered: int) -> None:
    """The times as a table."""
    table = Table(
        "kind", "queries", "median", "of ten the slowest", "slowest",
        title=f"CPU ms to register a query of a new form, beside {registered:,} others", title_justify="left",
        box=SIMPLE, pad_edge=False, padding=(0, 1, 0, 0),
    )  # fmt: skip
    for column in table.columns[1:]:
        column.justify = "right"
    for one in found:
        table.add_row(one.kind, f"{one.queries:,}", f"{one.median:.2f}", f"{one.p90:.2f}", f"{one.worst:.2f}")
    console.print(table)


# ---------------------------------------------------------------- queries


def _pick(chance: Random, sources: Sources, columns: dict[str, tuple[str, ...]]) -> str:
    alias = chance.choice(list(sources))
    return f"{alias}.{chance.choice(columns[sources[alias]])}"


def _number(chance: Random, sources: Sources, depth: int) -> str:
    """A numeric expression."""
    if depth == 0:
        return _pick(chance, sources, _NUMBERS)
    one, other = (_number(chance, sources, chance.randrange(depth)) for _ in range(2))
    forms = (
        f"{one} {chance.choice('+-*')} {other}", f"{one} * {chance.randint(2, 99)}", f"abs({one} - {other})", f"coalesce({one}, {other})",
        f"CASE WHEN {one} > {chance.randint(2, 99)} THEN {other} ELSE 0 END", f"({one} + {other}) * {chance.randint(2, 9)}", f"greatest({one}, {other})",
    )  # fmt: skip
    return chance.choice(forms)


def _condition(chance: Random, sources: Sources, depth: int = 2) -> str:
    """A condition."""
    number, text = _number(chance, sources, chance.randrange(depth + 1)), _pick(chance, sources, _TEXTS)
    n = chance.randint(2, 999)
    forms = (
        f"{number} {chance.choice(('>', '<', '>=', '<=', '=', '<>'))} {n}", f"{number} BETWEEN {n} AND {n + 7}", f"{number} IN ({n}, {n + 2}, {n + 5})",
        f"{text} = 'de'", f"{text} LIKE 'ab%'", f"lower({text}) = 'x'", f"length({text}) > {n}", f"{text} IS NOT NULL", f"{text} RLIKE '^a[0-9]+'",
        f"({number} > {n} OR {text} = 'gift')", f"NOT ({number} < {n})",
    )  # fmt: skip
    return chance.choice(forms)


def _conditions(chance: Random, sources: Sources, most: int = 3) -> list[str]:
    return [_condition(chance, sources) for _ in range(chance.randint(1, most))]


def _write_select(chance: Random, sources: Sources) -> str:
    """A SELECT list."""
    first = next(iter(sources))
    return ", ".join(
        [
            f"{first}.id",
            *(f"{_number(chance, sources, chance.randrange(3))} AS v{n}" for n in range(chance.randrange(4))),
        ]
    )


def _sources(chance: Random, many: int) -> Sources:
    names = [chance.choice(list(_NUMBERS)) for _ in range(many)]
    return {f"{name[0]}{n}": name for n, name in enumerate(names)}


def _write_lone(chance: Random) -> str:
    sources = _sources(chance, 1)
    ((alias, stream),) = sources.items()
    return f"SELECT {_write_select(chance, sources)} FROM {stream} {alias} WHERE {' AND '.join(_conditions(chance, sources))}"


def _write_join(chance: Random) -> str:
    sources = _sources(chance, chance.randint(2, 4))
    names = list(sources)
    joined = [f"{x}.user = {y}.user" for x, y in itertools.pairwise(names)]
    where = " AND ".join([*joined, *_conditions(chance, sources)])
    tables = ", ".join(f"{stream} {alias}" for alias, stream in sources.items())
    return (
        f"SELECT {_write_select(chance, sources)} FROM {tables} WHERE {where} WINDOW = {chance.randint(2, 90)} SECONDS"
    )


def _write_absence(chance: Random) -> str:
    sources = _sources(chance, 2)
    (x, first), (y, second) = sources.items()
    kind = chance.choice(("LEFT", "LEFT SEMI", "LEFT ANTI"))
    shown = _write_select(chance, sources if kind == "LEFT" else {x: first})
    on = " AND ".join([f"{x}.user = {y}.user", *_conditions(chance, {y: second}, 2)])
    where = " AND ".join(_conditions(chance, {x: first}, 2))
    return f"SELECT {shown} FROM {first} {x} {kind} JOIN {second} {y} ON {on} WHERE {where} DWINDOW ({x}, {y}) = {chance.randint(2, 90)} SECONDS"


def _write_aggregate(chance: Random) -> str:
    sources = _sources(chance, chance.randint(1, 2))
    names = list(sources)
    where = [
        *_conditions(chance, sources, 2),
        *(f"{x}.user = {y}.user" for x, y in itertools.pairwise(names)),
    ]
    aggregate = chance.choice(("sum", "max", "min", "avg"))
    window = "" if len(names) == 1 else f" WINDOW = {chance.randint(2, 90)} SECONDS"
    tables = ", ".join(f"{stream} {alias}" for alias, stream in sources.items())
    return (
        f"SELECT {names[0]}.user, count(*) AS n, {aggregate}({_number(chance, sources, 2)}) AS v FROM {tables} WHERE {' AND '.join(where)}{window} "
        f"GROUP BY {names[0]}.user, window({names[0]}.ts, '{chance.randint(2, 9)} minutes') HAVING count(*) > {chance.randint(2, 99)}"
    )


def _write_apart(chance: Random) -> str:
    sources = _sources(chance, 2)
    (x, first), (y, second) = sources.items()
    left, right = (_number(chance, {a: s}, chance.randrange(2)) for a, s in sources.items())
    where, within = " AND ".join(_conditions(chance, sources, 2)), f"WINDOW = {chance.randint(2, 90)} SECONDS"
    tables = f"{first} {x}, {second} {y}"
    shown = _write_select(chance, sources)
    forms = (
        f"SELECT {shown} FROM {tables} WHERE abs({left} - {right}) <= {chance.randint(2, 9)} AND {where} {within}",
        f"SELECT {shown} FROM {tables} WHERE {left} < {right} AND {where} {within}",
        f"SELECT {shown} FROM {first} {x} [ROWS {chance.randint(2, 90)}], {second} {y} [ROWS 5] WHERE {x}.user = {y}.user AND {where}",
        f"SELECT {shown} FROM {first} {x} FULL JOIN {second} {y} ON {x}.user = {y}.user AND {_condition(chance, {y: second})} {within}",
        f"SELECT {shown} FROM {first} {x} ASOF JOIN {second} {y} ON {x}.user = {y}.user AND {x}.ts >= {y}.ts WHERE {_condition(chance, {x: first})} {within}",
    )
    return chance.choice(forms)


KINDS: dict[str, Callable[[Random], str]] = {
    "one stream": _write_lone, "join": _write_join, "absence": _write_absence, "aggregate": _write_aggregate, "apart": _write_apart,
}  # fmt: skip
