"""What the answers must be: DuckDB counts them for a sample of the queries.

Invariant: nothing is counted of a run in which a sampled query has another number of answers.
"""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa

from watersmeet.errors import WatersmeetError
from watersmeet_lab.reproduce.rjoin.workload import COLUMNS, RELATIONS, WARM_UP, Workload
from watersmeet_lab.simulate.ring.coded_join import CodedJoin


class WrongAnswerError(WatersmeetError):
    """A simulated run whose answers are not DuckDB's."""


def verify(workload: Workload, tuples: int, answered: np.ndarray, sample: int) -> int:
    """Raise if a sampled query has not the answers of its first so many tuples; how many answers were compared. Half of the
    sample is random, half are queries in the middle of those that have answers: many have none."""
    connection = _load(workload, tuples)
    total = 0
    random = np.random.default_rng(workload.seed).permutation(workload.queries)[: sample - sample // 2]
    some = np.nonzero(answered)[0]
    some = some[np.argsort(answered[some], kind="stable")]
    middle = max(len(some) // 2 - sample // 4, 0)
    for number in {*random.tolist(), *some[middle : middle + sample // 2].tolist()}:
        row = connection.execute(count_of(workload.templates[number])).fetchone()
        assert row is not None
        if row[0] != answered[number]:
            raise WrongAnswerError(
                f"query {number} of {workload} has {answered[number]} answers, DuckDB counts {row[0]}; please report this"
            )
        total += row[0]
    return total


def count_of(template: CodedJoin) -> str:
    """SQL that counts a template's answers."""
    names = [f"x{n}" for n in range(len(template.streams))]
    tables = ", ".join(f"{s} {x}" for s, x in zip(template.streams, names, strict=True))
    where = [f"{names[a]}.{c} = {names[b]}.{d}" for (a, c), (b, d) in template.equalities]
    if template.bounds:
        where += [
            f"{y}.ts - {x}.ts <= {template.bounds[i][j]}"
            for i, x in enumerate(names)
            for j, y in enumerate(names)
            if i != j
        ]
    return f"SELECT count(*) FROM {tables} WHERE {' AND '.join(where)}"


def _load(workload: Workload, tuples: int) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    data, seen = workload.data, slice(WARM_UP, WARM_UP + tuples)
    for n in range(RELATIONS):
        mine = np.nonzero(data.stream[seen] == n)[0]
        columns = {c: data.values[seen][mine, i] for i, c in enumerate(COLUMNS)}
        table = pa.table({"ts": data.ts[seen][mine], **columns})
        connection.register("incoming", table)
        connection.execute(f"CREATE TABLE r{n} AS SELECT * FROM incoming")
        connection.unregister("incoming")
    return connection
