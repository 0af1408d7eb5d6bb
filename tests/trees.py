"""Generated join trees: the same query as SQL for watersmeet and as a description for the oracle, with streams that arrive in batches.

Streams have the columns id, k, n (small numbers and NULLs), xs (a list of id, NULL and NaN, or NULL) and ts; rows come out of order, and some of them late. Tables have id, k and n.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

import watersmeet as wm
from tests.cases import canonical
from tests.oracle import Arrival, OracleQuery, Outcome, Predicate, admitted, either, evaluate_tree, less, run, same
from tests.oracle_groups import Windows
from tests.oracle_state import may_keep
from tests.oracle_tree import Leaf, Node, TableLeaf, TableRow, Tree, leaves, variants, visible
from watersmeet.testing import QueryTest
from watersmeet.testing.values import from_us

SECOND = 1_000_000
KINDS = ("inner", "left", "right", "full", "semi", "anti")
WORDS = {"asof": "ASOF JOIN", "asof left": "ASOF LEFT JOIN", "inner": "JOIN", "left": "LEFT JOIN", "right": "RIGHT OUTER JOIN", "full": "FULL JOIN", "semi": "LEFT SEMI JOIN", "anti": "LEFT ANTI JOIN"}  # fmt: skip
TABLE = pa.schema({"id": pa.int64(), "k": pa.int64(), "n": pa.int64()})
SCHEMA = pa.schema(
    {"id": pa.int64(), "k": pa.int64(), "n": pa.int64(), "xs": pa.list_(pa.float64()), "ts": pa.timestamp("us")}
)


@dataclass
class Condition:
    """A condition as SQL, and for the oracle; `keys` are the values that it compares, with their aliases."""

    text: str
    holds: Predicate
    keys: list[tuple[frozenset[str], Any]] = field(default_factory=list)


@dataclass
class TreeCase:
    """A query and its input."""

    sql: str
    query: OracleQuery
    arrivals: dict[str, Arrival]
    options: dict[str, Any]
    restarts: frozenset[int] = frozenset()
    """The batches after which the query stops, and starts again."""
    tables: dict[str, list[TableRow]] = field(default_factory=dict)

    def expected(self) -> Outcome:
        return run(self.query, self.arrivals, ends=True)

    def may_keep(self) -> list[dict[str, int]]:
        """By batch and alias the most rows that may be in state."""
        assert self.query.tree is not None
        count = max(len(a.batches) for a in self.arrivals.values())
        kept, _ = admitted(self.arrivals, count)
        found = evaluate_tree(self.query, self.arrivals, kept, ends=False)
        meets_all = self.options["units"] == 1
        return [may_keep(found, self.query.tree, n, meets_all=meets_all) for n in range(count)]

    def batches(self) -> list[list[tuple[Any, ...]]]:
        """What leaves in every batch, and at the end; before some batches the query starts again."""
        test, count = self.start(), max(len(a.batches) for a in self.arrivals.values())
        out = []
        for n in range(count):
            out.append(test.batch(self.rows(n)).answers)
            test.check(*out[-1])
            if n in self.restarts:
                test.restart()
        return [*out, test.end().answers]

    def start(self) -> QueryTest:
        streams = {
            name: wm.Stream(SCHEMA.empty_table(), time="ts", lateness=f"{arrival.lateness_us} microseconds")
            for name, arrival in self.arrivals.items()
        }
        return QueryTest(wm.sql(self.sql, {**streams, **self.dimensions()}, **self.options))

    def rows(self, n: int) -> dict[str, list[dict[str, Any]]]:
        """The rows of a batch, by stream."""
        return {
            name: [{**row, "ts": None if row["ts"] is None else from_us(row["ts"])} for row in arrival.batches[n]]
            for name, arrival in self.arrivals.items()
            if n < len(arrival.batches)
        }

    def dimensions(self) -> dict[str, wm.Table]:
        """The tables as they are given."""
        return {name: wm.Table(pa.Table.from_pylist(rows, schema=TABLE)) for name, rows in self.tables.items()}


@dataclass
class Groups:
    """What is selected of groups with a window, as SQL and for the oracle."""

    select: str
    tail: str
    columns: list[tuple[str, str]]
    """(alias, column) of what the aggregation reads, keys first."""
    parts: dict[str, Any]
    """Of the oracle's query."""


def group(chance: random.Random, seen: list[str]) -> Groups:
    """Groups by a window of one alias' time, and by keys of others."""
    x, y = chance.choice(seen), chance.choice(seen)
    slide = chance.choice((1, 2, 3, 5))
    size, start = slide * chance.choice((1, 1, 2)) + chance.choice((0, 0, 1)), chance.choice((0, 0, -1, 1))
    size, start = (size, start) if abs(start) < slide else (max(size, 2), 0)
    window = f"window({x}.ts, '{size} seconds'"
    if (slide, start) != (size, 0):
        window += f", '{slide} seconds'"
    window += f", '{start} seconds')" if start else ")"
    keys = [(chance.choice(seen), chance.choice(("k", "n"))) for _ in range(chance.choice((0, 1, 1, 2)))]
    keys = list(dict.fromkeys(keys))
    columns = [(x, "ts"), *keys, (y, "n"), (x, "ts"), (y, "id")]
    at, time, number = (len(columns) - n for n in (3, 2, 1))
    more = {
        f"count(DISTINCT {y}.n)": ("count_distinct", at), f"round(var_pop({y}.n), 6)": ("var_pop", at), f"round(variance({y}.n), 6)": ("var_samp", at),
        f"first({y}.n)": ("first", at, time), f"last({y}.n)": ("last", at, time), f"max_by({y}.n, {y}.id)": ("max_by", at, number),
        f"min_by({y}.n, {y}.id)": ("min_by", at, number), f"CAST(collect_set({y}.n) AS string)": ("collect_set", at), f"CAST(collect_list({y}.n) AS string)": ("collect_list", at, time),
    }  # fmt: skip
    picked = chance.sample(list(more), chance.choice((0, 0, 2, 4)))
    aggregates = [("count", None), ("count", at), ("sum", at), ("max", at), *(more[text] for text in picked)]
    shown = ["unix_micros(CAST(window.start AS timestamp)) AS s", *(f"{a}.{c} AS {a}_{c}" for a, c in keys)]
    shown += ["count(*) AS c", f"count({y}.n) AS m", f"sum({y}.n) AS t", f"max({y}.n) AS h"]
    shown += [f"{text} AS x{n}" for n, text in enumerate(picked)]
    tail, having = f" GROUP BY {', '.join([window, *(f'{a}.{c}' for a, c in keys)])}", lambda _: True
    if chance.random() < 0.3:
        tail, having = f"{tail} HAVING c > 1", lambda g: g[len(keys) + 1] > 1
    ends = Windows(x, 0, size * SECOND, slide * SECOND, start * SECOND)
    parts = {"keys": len(keys) + 1, "aggregates": aggregates, "group_window": ends, "having": having}
    return Groups(", ".join(shown), tail, columns, parts)


def generate(
    chance: random.Random,
    kinds: tuple[str, ...] = KINDS,
    most: int = 4,
    rows: int = 4,
    *,
    grouped: bool = False,
    tables: int = 0,
) -> TreeCase:
    """A case out of thin air, of up to `most` streams and `rows` rows to a batch, with so many `tables` or fewer."""
    names = list("abcd"[: chance.randint(1 if tables else 2, most)])
    maker = _Maker(chance, kinds, names, tables)
    text, tree = maker.item(names)
    if tables and not maker.tables:
        text, tree = maker.table(text, tree)
    seen = list(visible(tree))
    where = [maker.filter(chance.choice(seen)) for _ in range(chance.choice((0, 0, 1)))]
    shown = [(alias, column) for alias in seen for column in ("id", chance.choice(("n", "k")))]
    shown += [(alias, "xs") for alias in seen if alias in names]
    select, tail, parts = ", ".join(f"{a}.{c} AS {a}_{c}" for a, c in shown), "", dict[str, Any]()
    if grouped:
        groups = group(chance, seen)
        select, tail, shown, parts = groups.select, groups.tail, groups.columns, groups.parts
    sql = f"SELECT {select} FROM {text}"
    sql += f" WHERE {' AND '.join(c.text for c in where)}" if where else ""
    sql += "".join(f" {item}" for item in maker.items) + tail
    apart = 1 if "asof" in kinds else 0
    streams = {alias: f"s{n}" for n, alias in enumerate(names)}
    query = OracleQuery(
        list(streams.items()),
        [c.holds for c in where],
        [],
        lambda env: tuple(env[a][c] for a, c in shown),
        tree=tree,
        **parts,
    )
    options: dict[str, Any] = {"units": chance.choice((1, 3))}
    if options["units"] > 1 and len(names) > 1 and chance.random() < 0.4:
        options["routing"] = "random"
    arrivals = {s: arrival(chance, rows, apart) for s in streams.values()}
    restarts = frozenset(n for n in range(3) if chance.random() < 0.25)
    dimensions = {leaf.alias: list(leaf.rows) for leaf in maker.tables}
    return TreeCase(sql, query, arrivals, options, restarts, dimensions)


def arrival(chance: random.Random, most: int, apart: int = 0) -> Arrival:
    """A stream of few rows in few batches; no two of one time, if they are some microseconds apart."""
    batches, at, number = [], 0, 0
    for _ in range(chance.randint(1, 4)):
        rows = []
        for _ in range(chance.randint(most // 2 if most > 4 else 0, most)):
            at += chance.choice((0, 0, 1, 1, 2, 5))
            number += 1
            ts = None if chance.random() < 0.03 else (at - chance.choice((0, 0, 0, 1, 3))) * SECOND + number * apart
            row = {"id": number, "k": chance.choice((1, 1, 2, None)), "n": chance.choice((0, 1, 2, None)), "ts": ts}
            rows.append({**row, "xs": None if row["k"] is None else [float(number), None, math.nan]})
        batches.append(rows)
    return Arrival(batches, chance.choice((0, 0, 1, 4)) * SECOND)


class _Maker:
    def __init__(self, chance: random.Random, kinds: tuple[str, ...], names: list[str], tables: int) -> None:
        self.chance, self.kinds, self.most_tables = chance, kinds, tables
        self.tables: list[TableLeaf] = []
        self.items: list[str] = []
        styles = ("pairs", "pairs", "pairs", "times", "times", "all", "range", "path")
        self.style = chance.choice(styles[:-1] if "asof" in kinds else styles)
        self.seconds = chance.choice((1, 2, 4))
        self.stops = chance.sample(names, min(len(names), 3))
        if self.style == "all":
            self.items.append(f"WINDOW = {self.seconds} SECONDS")
        if self.style == "path" and len(names) > 1:
            self.items.append(f"PATH ({', '.join(self.stops)}) = {self.seconds} SECONDS")

    def item(self, names: list[str]) -> tuple[str, Tree]:
        text, tree = self._streams(names)
        while len(self.tables) < self.most_tables and (self.chance.random() < 0.4):
            text, tree = self.table(text, tree)
        return text, tree

    def table(self, text: str, tree: Tree) -> tuple[str, Tree]:
        """An item of FROM, joined with a table of few rows: some keys twice, some NULL."""
        alias, kind = f"t{len(self.tables)}", self.chance.choice(("inner", "inner", "left"))
        rows = [
            TableRow(id=n, k=self.chance.choice((1, 2, 2, 3, None)), n=self.chance.choice((0, 1, 2, None)))
            for n in range(self.chance.randint(0, 4))
        ]
        leaf = TableLeaf(alias, rows)
        self.tables.append(leaf)
        seen = visible(tree)
        host = self.chance.choice(seen)
        link = self.chance.choice((self._equal, self._equal, self._equal, self._less, self._equal_or_null))
        on = [link(host, alias)]
        if self.chance.random() < 0.2:
            on.append(self.filter(self.chance.choice((host, alias, alias))))
        if self.chance.random() < 0.2:
            on.append(self._equal(self.chance.choice(seen), alias))
        words = f"{text} {WORDS[kind]} {alias} ON {' AND '.join(c.text for c in on)}"
        keys = [key for c in on for key in c.keys]
        return words, Node(kind, tree, leaf, [c.holds for c in on], keys)  # type: ignore[arg-type]

    def _streams(self, names: list[str]) -> tuple[str, Tree]:
        if len(names) == 1:
            alias = names[0]
            brackets = f" [RANGE {self.seconds} SECONDS]" if self.style == "range" else ""
            return f"s{'abcd'.index(alias)} {alias}{brackets}", Leaf(alias)
        kind = self.chance.choice(self.kinds)
        at = self.chance.choice((len(names) - 1, len(names) - 1, 1))
        (left, its_left), (right, its_right) = self.item(names[:at]), self.item(names[at:])
        right = f"({right})" if isinstance(its_right, Node) else right
        if kind.startswith("asof") and (isinstance(its_right, Node) or not self._certain(its_left)):
            kind = "inner"
        node = (
            self._as_of(kind, its_left, its_right) if kind.startswith("asof") else self._node(kind, its_left, its_right)
        )
        text = f"{left} {WORDS[kind]} {right} ON {' AND '.join(c.text for c in self._on)}"
        return text, node

    def _node(self, kind: str, left: Tree, right: Tree) -> Node:
        seen, other = self._with_time(left), self._with_time(right)
        x, y = self.chance.choice(self._certain(left) or seen), self.chance.choice(self._certain(right) or other)
        conditions = [self._across(x, y)]
        if self.chance.random() < 0.3:
            conditions.append(self._across(self.chance.choice(seen), self.chance.choice(other)))
        every = (*visible(left), *visible(right))
        if len(every) > len(seen) + len(other) and self.chance.random() < 0.4:
            conditions.append(self._equal(self.chance.choice(visible(left)), self.chance.choice(visible(right))))
        if self.chance.random() < 0.3:
            conditions.append(self.filter(self.chance.choice(every)))
        self._on = conditions
        windows: list[Any] = []
        paths: list[Any] = []
        span = self.seconds * SECOND
        if self.style == "times":
            windows, condition = [(x, y, -span, 2 * span)], self._near(x, y)
            conditions.append(condition)
        elif self.style == "all":
            windows = [(a, b, -span, span) for a in seen for b in other]
        elif self.style == "range":
            windows = [(a, b, -span, span) for a in seen for b in other]  # both have a range
        elif self.style == "path" and {x for x in self.stops if x in seen} and {y for y in self.stops if y in other}:
            paths = [(self.stops, [span] * (len(self.stops) - 1))]
        if self.style == "pairs" or (self.style == "path" and not paths):
            windows = [(x, y, *self._window(x, y))]
        keys = [key for c in conditions for key in c.keys]
        return Node(kind, left, right, [c.holds for c in conditions], keys, windows, paths)  # type: ignore[arg-type]

    def _as_of(self, kind: str, left: Tree, right: Tree) -> Node:
        """An as-of join, with a key or none, and with a window as tolerance or none; a forward one that preserves has one."""
        x, (y,), op = (
            self.chance.choice(self._certain(left)),
            visible(right),
            self.chance.choice((">=", ">", "<=", "<")),
        )
        on = [self._equal(x, y)] if self.chance.random() < 0.7 else []
        if self.chance.random() < 0.3:
            on.append(self.filter(self.chance.choice((x, y))))
        holds, keys = [c.holds for c in on], [key for c in on for key in c.keys]
        order = Condition(f"{x}.ts {op} {y}.ts", Predicate(frozenset(), lambda env: True))
        self._on = [*on, order]
        windows, span = [], self.seconds * SECOND
        if self.style == "all" or self.style == "range":
            windows = [(a, y, -span, span) for a in self._with_time(left)]
        elif self.chance.random() < 0.5 or (kind == "asof left" and op in ("<=", "<")):
            self.items.append(f"WINDOW ({x}, {y}) = {self.seconds} SECONDS")
            windows = [(x, y, -span, span)]
        return Node(kind, left, right, holds, keys, windows, asof=(x, op, y))  # type: ignore[arg-type]

    def _near(self, x: str, y: str) -> Condition:
        """A condition on event times, which is plain SQL: an alias that is NULL does not satisfy it."""
        span = self.seconds * SECOND

        def near(env: Any) -> bool | None:
            apart = None if None in (env[x]["ts"], env[y]["ts"]) else env[y]["ts"] - env[x]["ts"]
            return None if apart is None else -span <= apart <= 2 * span

        text = (
            f"{y}.ts BETWEEN {x}.ts - INTERVAL {self.seconds} SECONDS AND {x}.ts + INTERVAL {2 * self.seconds} SECONDS"
        )
        return Condition(text, Predicate(frozenset((x, y)), near))

    @staticmethod
    def _with_time(tree: Tree) -> tuple[str, ...]:
        """The streams of a tree's rows."""
        return tuple(a for a in visible(tree) if a in leaves(tree))

    @staticmethod
    def _certain(tree: Tree) -> tuple[str, ...]:
        return tuple(a for a in visible(tree) if all(a in v for v in variants(tree)))

    def _window(self, x: str, y: str) -> tuple[int | None, int | None]:
        """A window item between two aliases."""
        seconds = self.chance.choice((1, 2, 4))
        if self.chance.random() < 0.7:
            self.items.append(f"WINDOW ({x}, {y}) = {seconds} SECONDS")
            return -seconds * SECOND, seconds * SECOND
        self.items.append(f"DWINDOW ({x}, {y}) = {seconds} SECONDS")
        return 0, seconds * SECOND

    def _across(self, x: str, y: str) -> Condition:
        """A condition of two aliases."""
        form = self.chance.choice(("=", "=", "=", "<", "band", "sum"))
        if form == "=":
            return self._equal(x, y)
        pair = frozenset((x, y))
        keys = [(frozenset((a,)), lambda env, a=a: env[a]["n"]) for a in (x, y)]
        if form == "<":
            return self._less(x, y)
        if form == "band":

            def near(env: Any) -> bool | None:
                return None if None in (env[x]["n"], env[y]["n"]) else abs(env[x]["n"] - env[y]["n"]) <= 1

            return Condition(f"abs({x}.n - {y}.n) <= 1", Predicate(pair, near), keys)

        def total(env: Any) -> bool | None:
            return None if None in (env[x]["n"], env[y]["n"]) else env[x]["n"] + env[y]["n"] > 1

        return Condition(f"{x}.n + {y}.n > 1", Predicate(pair, total))

    @staticmethod
    def _equal_or_null(x: str, y: str) -> Condition:
        """A condition that does not reject NULLs of x."""
        holds = Predicate(frozenset((x, y)), lambda env: either(env[x]["k"] is None, same(env[x]["k"], env[y]["k"])))
        return Condition(f"({x}.k IS NULL OR {x}.k = {y}.k)", holds)

    @staticmethod
    def _less(x: str, y: str) -> Condition:
        keys = [(frozenset((a,)), lambda env, a=a: env[a]["n"]) for a in (x, y)]
        holds = Predicate(frozenset((x, y)), lambda env: less(env[x]["n"], env[y]["n"]))
        return Condition(f"{x}.n < {y}.n", holds, keys)

    @staticmethod
    def _equal(x: str, y: str) -> Condition:
        keys = [(frozenset((a,)), lambda env, a=a: env[a]["k"]) for a in (x, y)]
        holds = Predicate(frozenset((x, y)), lambda env: same(env[x]["k"], env[y]["k"]))
        return Condition(f"{x}.k = {y}.k", holds, keys)

    def filter(self, x: str) -> Condition:
        """A condition of one alias."""
        form, one = self.chance.choice(("=", "or null", "not null", "in")), frozenset((x,))
        if form == "=":
            return Condition(f"{x}.n = 1", Predicate(one, lambda env: same(env[x]["n"], 1)))
        if form == "or null":
            return Condition(
                f"({x}.n > 0 OR {x}.n IS NULL)",
                Predicate(one, lambda env: either(less(0, env[x]["n"]), env[x]["n"] is None)),
            )
        if form == "not null":
            return Condition(f"{x}.k IS NOT NULL", Predicate(one, lambda env: env[x]["k"] is not None))
        return Condition(
            f"{x}.k IN (1, 3)", Predicate(one, lambda env: either(same(env[x]["k"], 1), same(env[x]["k"], 3)))
        )


def counted(rows: Any) -> Counter[Any]:
    return Counter(tuple(tuple(map(canonical, v)) if isinstance(v, list) else v for v in row) for row in rows)
