"""Keys that are spread over units, whichever, whenever and how far, change no result and no count; nor do saving and going on in between."""

from __future__ import annotations

import random
import warnings
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import SECOND, All, Case, Col, Data, Op, bag, op, rows_of
from tests.properties.test_local import sources
from tests.strategies import cases, with_lateness
from watersmeet.operators import balance
from watersmeet.plan.options import Options
from watersmeet.routing.balance import Wanted
from watersmeet.runtime.local import LocalRun
from watersmeet.runtime.sources import source_of
from watersmeet.sql.parse import parse


class SpreadingRun(LocalRun):
    """A local run whose hot keys are drawn anew after every batch."""

    def __init__(self, case: Case, units: int, seed: int) -> None:
        given = {name: source_of(name, data) for name, data in sources(case).items()}
        join = parse(case.sql(), {name: spec for name, (_, spec) in given.items()})
        super().__init__(join, {name: table for name, (table, _) in given.items()}, Options(units=units), cores=units)
        self.draw, self.most_hot, self.most_spread = random.Random(seed), 0, 0
        self.given = join

    def push(self, wires: Mapping[str, pa.Table], **how: Any) -> list[pa.Table]:
        if self.draw.random() < 0.3:
            self.resume(self.save())
        kept, balance.find_wanted = balance.find_wanted, self._draw
        try:
            return super().push(wires, **how)
        finally:
            balance.find_wanted = kept
            self.most_hot = max(self.most_hot, len(self.balanced.hot))
            self.most_spread = max([self.most_spread, *(len(h["spread"]) for h in self.balanced.hot)])

    def _draw(self, counts: Any, share: int, cores: int, known: Mapping[int, Any]) -> dict[int, Wanted]:
        out = {}
        for key in sorted({*known, *map(int, counts.keys)}):
            if share > 1 and self.draw.random() < 0.5:
                own = counts.keys.get(str(key))
                sides = [n for n, rows in enumerate(own or ()) if rows]
                if key in known or sides:
                    anchor = known[key].anchor if key in known else self.draw.choice(sides)
                    home = key % share
                    others = [c for c in range(share) if c != home]
                    number = self.draw.randint(1, len(others))
                    out[key] = Wanted(anchor, (home, *self.draw.sample(others, number)))
        return out


def check(case: Case, batch_rows: int, units: int, seed: int) -> SpreadingRun:
    run = SpreadingRun(case, units, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        found = run.run(batch_rows)
    want = case.expected(batch_rows)
    assert bag(rows_of(found)) == bag(want.rows), case.sql()
    for stream, (least, most) in case.late_bounds(want).items():
        assert least <= run.units.late.get(stream, 0) <= most
    return run


@given(st.data(), cases(null_ts=True), st.sampled_from((1, 2, 3)), st.sampled_from((2, 4, 8)), st.integers(0, 2**32))
def test_hot_keys_change_nothing(data: Any, case: Case, batch_rows: int, units: int, seed: int) -> None:
    check(data.draw(with_lateness(case)), batch_rows, units, seed)


def skewed(draw: random.Random, rows: int) -> Data:
    """Tuples of few keys, in the order of time, but for some."""
    times = sorted(draw.randrange(rows) * SECOND // 2 for _ in range(rows))
    return Data(
        tuple(
            (
                n,
                draw.choice((1, 1, 2)),
                draw.choice((1, 1, 3)),
                0.0,
                float(n % 3),
                "x",
                ts - draw.choice((0, 0, SECOND)),
            )
            for n, ts in enumerate(times)
        ),
        lateness_us=draw.choice((0, SECOND)),
    )


def equals(x: str, y: str, column: str) -> Op:
    return op("=", Col(x, column), Col(y, column))


@given(st.integers(0, 2**32), st.sampled_from((1, 3, 5)), st.sampled_from(("pair", "three", "grid", "pipeline")))
def test_of_few_keys(seed: int, batch_rows: int, shape: str) -> None:
    draw = random.Random(seed)
    shapes = {
        "pair": (("a", "b"), (equals("a", "b", "k"),)),
        "three": (("a", "b", "c"), (equals("a", "b", "k"), equals("b", "c", "k"))),
        "grid": (("a", "b", "c"), (equals("a", "b", "k"), equals("b", "c", "n"))),
        "pipeline": (("a", "b", "c"), (equals("a", "b", "k"), op("<", Col("b", "v"), Col("c", "v")))),
    }
    names, predicates = shapes[shape]
    case = Case(
        aliases=tuple((name, f"s{n}") for n, name in enumerate(names)),
        predicates=predicates,
        windows=(All("WINDOW", draw.choice((2, 4)) * SECOND),),
        select=tuple(Col(name, "id") for name in names),
        data=tuple((f"s{n}", skewed(draw, 30 if shape == "pair" else 16)) for n in range(len(names))),
    )
    run = check(case, batch_rows, 8, seed)
    assert run.most_spread > 1 or batch_rows > 3
