"""What the answers must be: DuckDB joins the same tuples for every query of a run, and the rows are compared, as bags.

    simulation   rows (query, first value, second value) --AnswerBag--> how often each
    DuckDB       all queries in one statement: a table of queries, a table of (tuple, attribute, value)

Invariant: nothing of the simulation is used to compute what is expected. A difference is counted, never passed over: rows that are missing, and rows that are too many.
"""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa

from watersmeet.kernels.registered.rewriting import AT_SLOTS, TEMPLATE
from watersmeet_lab.reproduce.rjoin.workload import ATTRIBUTES, COLUMNS, VALUES, WARM_UP, Workload
from watersmeet_lab.simulate.ring.query_registry import QueryRegistry

_CELLS = VALUES * VALUES
_ENOUGH = 1 << 22
"""So many cells are held before they are added up, and no fewer than have been added up already: then adding up costs about as much as sorting all cells a few times."""


@dataclass(frozen=True)
class Compared:
    """A run's answers against DuckDB's."""

    rows: int
    """That were compared."""
    queries: int
    """That have answers."""
    missing: int = 0
    extra: int = 0

    @property
    def equal(self) -> bool:
        return self.missing == self.extra == 0


class AnswerBag:
    """The rows that a simulation answers, by template: two values each, and how often."""

    def __init__(self, registry: QueryRegistry) -> None:
        self.registry = registry
        self._slots = np.zeros((0, 2), np.int64)
        self._held: list[tuple[np.ndarray, np.ndarray]] = []
        self._size = self._merged = 0

    def take(self, answers: np.ndarray) -> None:
        if not len(answers):
            return
        templates = self.registry.catalogue.templates
        if len(self._slots) < len(templates):
            self._slots = np.array([[t.slot_of(place) for place in t.select] for t in templates], np.int64)
        number = answers[:, TEMPLATE]
        first, second = (answers[np.arange(len(answers)), AT_SLOTS + self._slots[number, n]] for n in (0, 1))
        self._hold(*np.unique(number * _CELLS + first * VALUES + second, return_counts=True))

    def _hold(self, cells: np.ndarray, counts: np.ndarray) -> None:
        self._held.append((cells, counts))
        self._size += len(cells)
        if self._size > max(_ENOUGH, self._merged):
            merged = self.merge()
            self._held, self._size, self._merged = [merged], 0, len(merged[0])

    def merge(self) -> tuple[np.ndarray, np.ndarray]:
        """Cells and counts, each cell once."""
        if not self._held:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        cells, at = np.unique(np.concatenate([c for c, _ in self._held]), return_inverse=True)
        counts = np.zeros(len(cells), np.int64)
        np.add.at(counts, at, np.concatenate([n for _, n in self._held]))
        return cells, counts

    def table(self) -> pa.Table:
        cells, counts = self.merge()
        return pa.table({"template": cells // _CELLS, "v": cells // VALUES % VALUES, "w": cells % VALUES, "n": counts})


class Expected:
    """DuckDB's answers to all queries of a workload over its first so many tuples."""

    def __init__(self, workload: Workload, tuples: int) -> None:
        self.connection = duckdb.connect()
        self.connection.execute("SET threads = 1")
        self.connection.execute(
            "SET disabled_optimizers = 'join_order'"
        )  # chains as they are written, from the queries on: its own order joins all tuples with each other first, and took 13 GB
        self._create("t", _unpivot(workload, tuples))
        self._create("q", _list_queries(workload))
        self.connection.execute(f"CREATE TABLE expected AS {join_all(workload)}")

    def compare(self, found: pa.Table, template_of: np.ndarray) -> Compared:
        """Rows (template, v, w, n) against what is expected of every query."""
        self._create("found", found)
        self._create("posed", pa.table({"q": np.arange(len(template_of)), "template": template_of}))
        missing, extra, rows, queries = self.connection.execute(
            """
            WITH mine AS (SELECT q, v, w, n FROM found JOIN posed USING (template)),
            paired AS (
                SELECT q, coalesce(mine.n, 0) AS has, coalesce(expected.n, 0) AS wants
                FROM mine FULL JOIN expected USING (q, v, w)
            )
            SELECT sum(greatest(wants - has, 0)), sum(greatest(has - wants, 0)), sum(wants), count(DISTINCT q) FROM paired
            """
        ).fetchone() or (0, 0, 0, 0)
        self.connection.execute("DROP TABLE found; DROP TABLE posed")
        return Compared(int(rows or 0), int(queries or 0), int(missing or 0), int(extra or 0))

    def _create(self, name: str, table: pa.Table) -> None:
        self.connection.register("incoming", table)
        self.connection.execute(f"CREATE TABLE {name} AS SELECT * FROM incoming")
        self.connection.unregister("incoming")


def join_all(workload: Workload) -> str:
    """One statement for all chains: alias i is a tuple by the attribute that joins it to the one before, and once more by that to the next.

    >>> "u1.value = t2.value" in join_all(Workload(joins=3))
    True
    """
    last = workload.joins - 1
    parts = ["q JOIN t t0 ON t0.rel = r0 AND t0.attr = l0"]
    for i in range(1, workload.joins):
        before = "t0" if i == 1 else f"u{i - 1}"
        parts.append(f"JOIN t t{i} ON t{i}.rel = r{i} AND t{i}.attr = m{i} AND {before}.value = t{i}.value")
        if i < last:
            parts.append(f"JOIN t u{i} ON u{i}.id = t{i}.id AND u{i}.attr = l{i}")
    times = ", ".join(f"t{i}.ts" for i in range(workload.joins))
    width = workload.templates[0].bounds[0][1] if workload.window is not None and workload.queries else None
    where = "" if width is None else f"WHERE greatest({times}) - least({times}) <= {width}"
    return f"SELECT q, t0.value AS v, t{last}.value AS w, count(*) AS n FROM {' '.join(parts)} {where} GROUP BY ALL"


def _unpivot(workload: Workload, tuples: int) -> pa.Table:
    """(tuple, relation, time, attribute, value)."""
    seen, data = slice(WARM_UP, WARM_UP + tuples), workload.data
    count = len(data.stream[seen])
    columns = {"id": np.arange(count), "rel": data.stream[seen], "ts": data.ts[seen]}
    wide = {name: np.repeat(values, ATTRIBUTES) for name, values in columns.items()}
    return pa.table(wide | {"attr": np.tile(np.arange(ATTRIBUTES), count), "value": data.values[seen].ravel()})


def _list_queries(workload: Workload) -> pa.Table:
    """The relations of every query, and the attributes on both sides of its equalities."""
    attribute = {name: n for n, name in enumerate(COLUMNS)}
    out: dict[str, list[int]] = {"q": list(range(workload.queries))}
    for i in range(workload.joins):
        out[f"r{i}"] = [int(t.streams[i][1:]) for t in workload.templates]
    for i in range(workload.joins - 1):
        out[f"l{i}"] = [attribute[t.equalities[i][0][1]] for t in workload.templates]
        out[f"m{i + 1}"] = [attribute[t.equalities[i][1][1]] for t in workload.templates]
    return pa.table(out)
