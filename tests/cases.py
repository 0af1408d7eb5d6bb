"""A test case: one structured description that becomes SQL text, an `OracleQuery` and Arrow tables.

Every class has a `repr` that is Python, so a shrunk failure can be pasted as an `@example`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import pyarrow as pa

from tests import oracle
from tests.oracle import Arrival, Env, OracleQuery, Predicate

SECOND = 1_000_000
BASE_US = 1_704_067_200 * SECOND
"""2024-01-01T00:00:00Z; the times of a `Case` count from here."""
NOW_US = BASE_US + 5 * SECOND
"""What the clock shows while the batches of a case arrive."""

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("k", pa.int64()),
        ("n", pa.int64()),
        ("f", pa.float64()),
        ("v", pa.float64()),
        ("name", pa.string()),
        ("ts", pa.timestamp("us", tz="UTC")),
    ]
)
COLUMNS = SCHEMA.names


# ---------------------------------------------------------------- expressions


@dataclass(frozen=True)
class Col:
    alias: str
    name: str

    @property
    def aliases(self) -> frozenset[str]:
        return frozenset({self.alias})

    def sql(self) -> str:
        return f"{self.alias}.{self.name}"

    def value(self, env: Env) -> Any:
        return env[self.alias][self.name]


@dataclass(frozen=True)
class Lit:
    literal: Any

    aliases = frozenset()

    def sql(self) -> str:
        if isinstance(self.literal, str):
            return "'" + self.literal.replace("'", "''") + "'"
        return "NULL" if self.literal is None else repr(self.literal)

    def value(self, env: Env) -> Any:
        return self.literal


@dataclass(frozen=True)
class Op:
    """An operator or a function of one or two arguments; `KINDS` says how each is written and what it means."""

    name: str
    args: tuple[Expression, ...]

    @property
    def aliases(self) -> frozenset[str]:
        return frozenset().union(*(arg.aliases for arg in self.args))

    def sql(self) -> str:
        return KINDS[self.name][0].format(*map(self._wrapped, self.args))

    def _wrapped(self, arg: Expression) -> str:
        nested = self.name in ARITHMETIC and isinstance(arg, Op) and arg.name in ARITHMETIC
        return f"({arg.sql()})" if nested else arg.sql()

    def value(self, env: Env) -> Any:
        return KINDS[self.name][1](*(arg.value(env) for arg in self.args))


Expression = Col | Lit | Op
ARITHMETIC = ("+", "-", "*", "%")


def _strict(function: Any) -> Any:
    """NULL in, NULL out."""
    return lambda *args: None if None in args else function(*args)


KINDS: dict[str, tuple[str, Any]] = {
    "+": ("{0} + {1}", _strict(lambda x, y: x + y)),
    "-": ("{0} - {1}", _strict(lambda x, y: x - y)),
    "*": ("{0} * {1}", _strict(lambda x, y: x * y)),
    "%": ("{0} % {1}", _strict(lambda x, y: int(math.fmod(x, y)))),
    "abs": ("abs({0})", _strict(abs)),
    "lower": ("lower({0})", _strict(str.lower)),
    "reverse": ("reverse({0})", _strict(lambda text: text[::-1])),
    "coalesce": ("coalesce({0}, {1})", lambda x, y: y if x is None else x),
    "=": ("{0} = {1}", oracle.same),
    "<>": ("{0} <> {1}", lambda x, y: oracle.negated(oracle.same(x, y))),
    "<": ("{0} < {1}", oracle.less),
    ">": ("{0} > {1}", lambda x, y: oracle.less(y, x)),
    "<=": ("{0} <= {1}", lambda x, y: oracle.negated(oracle.less(y, x))),
    ">=": ("{0} >= {1}", lambda x, y: oracle.negated(oracle.less(x, y))),
    "between": (
        "{0} BETWEEN {1} AND {2}",
        lambda x, lo, hi: oracle.both(oracle.negated(oracle.less(x, lo)), oracle.negated(oracle.less(hi, x))),
    ),
    "and": ("({0} AND {1})", oracle.both),
    "or": ("({0} OR {1})", oracle.either),
    "not": ("NOT ({0})", oracle.negated),
    "is null": ("{0} IS NULL", lambda x: x is None),
    "is not null": ("{0} IS NOT NULL", lambda x: x is not None),
}


def op(name: str, *args: Expression | float | str) -> Op:
    """Literals may be given bare."""
    return Op(name, tuple(arg if isinstance(arg, Col | Lit | Op) else Lit(arg) for arg in args))


def columns_of(expression: Expression) -> list[Col]:
    if isinstance(expression, Col):
        return [expression]
    return [c for arg in expression.args for c in columns_of(arg)] if isinstance(expression, Op) else []


# ---------------------------------------------------------------- windows


def span(us: int) -> str:
    for unit, length in (("SECONDS", SECOND), ("MILLISECONDS", 1000), ("MICROSECONDS", 1)):
        if us % length == 0:
            return f"{us // length} {unit}"
    raise AssertionError


@dataclass(frozen=True)
class All:
    """`WINDOW = w` or `WITHIN w`: every pair."""

    keyword: str
    us: int

    def sql(self) -> str:
        return f"WINDOW = {span(self.us)}" if self.keyword == "WINDOW" else f"WITHIN {span(self.us)}"

    def bounds(self, aliases: tuple[str, ...]) -> list[tuple[str, str, int | None, int | None]]:
        return [(x, y, -self.us, self.us) for x, y in combinations(aliases, 2)]


@dataclass(frozen=True)
class Pair:
    """`WINDOW (x, y) = w` or `DWINDOW (x, y) = w`."""

    keyword: str
    x: str
    y: str
    us: int

    def sql(self) -> str:
        return f"{self.keyword} ({self.x}, {self.y}) = {span(self.us)}"

    def bounds(self, aliases: tuple[str, ...]) -> list[tuple[str, str, int | None, int | None]]:
        return [(self.x, self.y, 0 if self.keyword == "DWINDOW" else -self.us, self.us)]


@dataclass(frozen=True)
class Range:
    """`FROM s alias [RANGE w]`."""

    alias: str
    us: int

    def bounds(self, aliases: tuple[str, ...]) -> list[tuple[str, str, int | None, int | None]]:
        return [(self.alias, y, None, self.us) for y in aliases if y != self.alias]


@dataclass(frozen=True)
class Interval:
    """A condition on event times in WHERE or ON: lo <= y.ts - x.ts <= hi, or strictly between."""

    x: str
    y: str
    lo: int | None
    hi: int | None
    strict: bool = False

    def _edge(self, us: int) -> str:
        if us == 0:
            return f"{self.x}.ts"
        return f"{self.x}.ts {'-' if us < 0 else '+'} INTERVAL {span(abs(us))}"

    def sql(self) -> str:
        if self.lo is not None and self.hi is not None and not self.strict:
            return f"{self.y}.ts BETWEEN {self._edge(self.lo)} AND {self._edge(self.hi)}"
        parts = [] if self.lo is None else [f"{self.y}.ts {'>' if self.strict else '>='} {self._edge(self.lo)}"]
        parts += [] if self.hi is None else [f"{self.y}.ts {'<' if self.strict else '<='} {self._edge(self.hi)}"]
        return " AND ".join(parts)

    def bounds(self, aliases: tuple[str, ...]) -> list[tuple[str, str, int | None, int | None]]:
        inside = int(self.strict)
        return [
            (
                self.x,
                self.y,
                None if self.lo is None else self.lo + inside,
                None if self.hi is None else self.hi - inside,
            )
        ]


@dataclass(frozen=True)
class Path:
    """`PATH (x, y, ...) = w`, or with a bound for each hop."""

    stops: tuple[str, ...]
    hops: tuple[int, ...]

    def sql(self) -> str:
        same = len(set(self.hops)) == 1
        bounds = span(self.hops[0]) if same else f"({', '.join(map(span, self.hops))})"
        return f"PATH ({', '.join(self.stops)}) = {bounds}"

    def bounds(self, aliases: tuple[str, ...]) -> list[tuple[str, str, int | None, int | None]]:
        """None that every result satisfies: see `OracleQuery.paths`."""
        return []


Window = All | Pair | Range | Interval | Path


# ---------------------------------------------------------------- the case


@dataclass(frozen=True)
class Data:
    """A stream's rows in the order of arrival, times in microseconds from `BASE_US`; no lateness means a plain table."""

    rows: tuple[tuple[Any, ...], ...] = ()
    lateness_us: int | None = None
    idle_us: int | None = None
    max_ahead_us: int | None = None
    """Against the clock `NOW_US`."""

    def dicts(self) -> list[dict[str, Any]]:
        rows = [dict(zip(COLUMNS, row, strict=True)) for row in self.rows]
        return [row | {"ts": None if row["ts"] is None else BASE_US + row["ts"]} for row in rows]

    def table(self) -> pa.Table:
        rows = self.dicts()
        return pa.table({f.name: pa.array([row[f.name] for row in rows], f.type) for f in SCHEMA}, schema=SCHEMA)


@dataclass(frozen=True)
class Agg:
    """An aggregate; without an argument count(*)."""

    function: str
    argument: Expression | None = None

    def sql(self) -> str:
        return f"{self.function}({'*' if self.argument is None else self.argument.sql()})"


@dataclass(frozen=True)
class Case:
    aliases: tuple[tuple[str, str], ...]
    predicates: tuple[Expression, ...]
    windows: tuple[Window, ...]
    select: tuple[Expression, ...]
    data: tuple[tuple[str, Data], ...]
    rows: tuple[tuple[str, int], ...] = ()
    tumbling: frozenset[str] = frozenset()
    """The aliases whose rows are counted in blocks."""
    style: str = "comma"
    """How it is written. comma: FROM a, b WHERE ...; join: FROM a JOIN b ON ...; first: window items before WHERE."""
    distinct: bool = False
    aggregates: tuple[Agg, ...] = ()
    """GROUP BY the columns of `select`, if there are any."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(alias for alias, _ in self.aliases)

    # -------- SQL

    def sql(self) -> str:
        select = ", ".join(f"{e.sql()} AS c{i}" for i, e in enumerate((*self.select, *self.aggregates)))
        select = f"DISTINCT {select}" if self.distinct else select
        items = " AND ".join(w.sql() for w in self.windows if isinstance(w, All | Pair | Path))
        source, where = self._joined() if self.style == "join" else self._listed()
        tail = [items, where] if self.style == "first" else [where, items]
        if self.aggregates and self.select:
            tail.append(f"GROUP BY {', '.join(e.sql() for e in self.select)}")
        return " ".join(part for part in (f"SELECT {select} FROM {source}", *tail) if part)

    def _input(self, alias: str) -> str:
        blocks = alias in self.tumbling
        sizes = [f"[TUMBLING {n} ROWS]" if blocks else f"[ROWS {n}]" for a, n in self.rows if a == alias]
        sizes += [f"[RANGE {span(w.us)}]" for w in self.windows if isinstance(w, Range) and w.alias == alias]
        return " ".join([dict(self.aliases)[alias], alias, *sizes])

    def _conditions(self) -> list[tuple[frozenset[str], str]]:
        times = [(frozenset({w.x, w.y}), w.sql()) for w in self.windows if isinstance(w, Interval)]
        return [(p.aliases, p.sql()) for p in self.predicates] + times

    def _listed(self) -> tuple[str, str]:
        where = " AND ".join(text for _, text in self._conditions())
        return ", ".join(map(self._input, self.names)), f"WHERE {where}" if where else ""

    def _joined(self) -> tuple[str, str]:
        """Each condition stands in the ON of the first JOIN that knows its aliases; those of the first alias in WHERE."""
        seen, source, left = {self.names[0]}, self._input(self.names[0]), self._conditions()
        for alias in self.names[1:]:
            seen.add(alias)
            here = [c for c in left if alias in c[0] and c[0] <= seen]
            left = [c for c in left if c not in here]
            on = " AND ".join(text for _, text in here)
            source += f" JOIN {self._input(alias)} ON {on}" if on else f" CROSS JOIN {self._input(alias)}"
        where = " AND ".join(text for _, text in left)
        return source, f"WHERE {where}" if where else ""

    # -------- oracle

    def query(self) -> OracleQuery:
        arguments = [a.argument for a in self.aggregates if a.argument is not None]
        read = (*self.select, *arguments)
        at = iter(range(len(self.select), len(read)))
        found = [(a.function, None if a.argument is None else next(at)) for a in self.aggregates]
        return OracleQuery(
            aliases=self.aliases,
            predicates=[Predicate(p.aliases, p.value) for p in self.predicates],
            windows=[bound for w in self.windows for bound in w.bounds(self.names)],
            select=lambda env: tuple(e.value(env) for e in read),
            rows=dict(self.rows),
            tumbling=self.tumbling,
            distinct=self.distinct,
            aggregates=found if self.aggregates else None,
            keys=len(self.select),
            paths=[(w.stops, w.hops) for w in self.windows if isinstance(w, Path)],
        )

    def arrivals(self, batch_rows: int) -> dict[str, Arrival]:
        return {
            name: Arrival(
                oracle.batches_of(d.dicts(), batch_rows),
                d.lateness_us,
                d.idle_us,
                None if d.max_ahead_us is None else NOW_US + d.max_ahead_us,
            )
            for name, d in self.data
        }

    def expected(self, batch_rows: int = 1000) -> oracle.Outcome:
        return oracle.run(self.query(), self.arrivals(batch_rows))

    def late_bounds(self, outcome: oracle.Outcome) -> dict[str, tuple[int, int]]:
        """How many late tuples must and may be counted per stream.

        A tuple counts where it would have been stored. It must be stored if some alias' filters hold and no column that
        the alias' conditions read is NULL, and its keys do not contradict one another; it may not be if every alias' filter fails or key is NULL. Between the two,
        a plan decides whether NULL in, say, a comparison is worth storing. Under ROWS every tuple may count.
        """
        return {
            stream: (
                sum(self._useful(stream, row, self._complete) for row in rows),
                sum(self._useful(stream, row, self._keyed) for row in rows),
            )
            for stream, rows in outcome.late_rows.items()
        }

    def _useful(self, stream: str, row: oracle.Row, test: Any) -> bool:
        return any(test(alias, row) for alias, source in self.aliases if source == stream)

    def _complete(self, alias: str, row: oracle.Row) -> bool:
        across = [p for p in self.predicates if len(p.aliases) > 1]
        read = {c.name for p in across for c in columns_of(p) if c.alias == alias and c.name != "ts"}
        return (
            self._filtered(alias, row) and all(row[name] is not None for name in read) and self._consistent(alias, row)
        )

    def _keyed(self, alias: str, row: oracle.Row) -> bool:
        keys = [side for p in self._equalities() for side in p.args if side.aliases == {alias}]
        usable = self._filtered(alias, row) and all(key.value({alias: row}) is not None for key in keys)
        return usable or alias in dict(self.rows)

    def _equalities(self) -> list[Op]:
        """The equalities whose sides read one alias each: keys."""
        equal = [p for p in self.predicates if isinstance(p, Op) and p.name == "="]
        return [p for p in equal if all(len(side.aliases) == 1 for side in p.args)]

    def _consistent(self, alias: str, row: oracle.Row) -> bool:
        """Whether the row obeys what the keys imply of one alias: a.k = b.f and b.f = a.f imply a.k = a.f."""
        for start in {side for p in self._equalities() for side in p.args if side.aliases == {alias}}:
            reached, before = {start}, set()
            while reached != before:
                before = set(reached)
                reached |= {side for p in self._equalities() if before & set(p.args) for side in p.args}
            values = [side.value({alias: row}) for side in reached if side.aliases == {alias}]
            if any(oracle.same(values[0], value) is not True for value in values):
                return False
        return True

    def _filtered(self, alias: str, row: oracle.Row) -> bool:
        return all(p.value({alias: row}) is True for p in self.predicates if p.aliases <= {alias})

    # -------- Arrow

    def tables(self) -> dict[str, pa.Table]:
        return {name: data.table() for name, data in self.data}

    def __str__(self) -> str:
        return self.sql()


def canonical(value: Any) -> Any:
    """A value that a bag can count: NaN is one value, a time is whole microseconds. Before 4.2 Spark gives binary values that change."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    return bytes(value) if isinstance(value, bytearray) else value


def rounded(rows: Any) -> list[tuple[Any, ...]]:
    """Rows whose doubles have lost the digits that depend on the order of an addition."""
    return [tuple(float(f"{v:.12g}") if isinstance(v, float) else v for v in row) for row in rows]


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """The rows of a result, times as whole microseconds."""
    columns = [
        c.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()) if pa.types.is_timestamp(c.type) else c
        for c in table.columns
    ]
    return list(zip(*(c.to_pylist() for c in columns), strict=True))


def bag(rows: Any) -> dict[tuple[Any, ...], int]:
    counts: dict[tuple[Any, ...], int] = {}
    for row in rows:
        key = tuple(map(canonical, row))
        counts[key] = counts.get(key, 0) + 1
    return counts
