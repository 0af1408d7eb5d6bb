"""RJoin against the oracle: theorem 1 (nothing is lost) and theorem 2 (nothing comes twice) of Idreos et al. (2008).

Whatever the delays, the order of arrival, the choice of keys, the nodes and their coming and going, as long as no message
takes longer than Delta. With the paper's rules taken away, answers may be lost; wrong or doubled they never are.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.lab.simulate.ring.rings import FOREVER, STREAMS, Query, expected, queries, rows_of, templates, tuples
from watersmeet.query.window import UNBOUNDED
from watersmeet_lab.simulate.ring.circle import Ring, place
from watersmeet_lab.simulate.ring.coded_join import CodedJoin
from watersmeet_lab.simulate.ring.saved import message, read_rows, restore, save
from watersmeet_lab.simulate.ring.simulation import RingSimulation, Tuples
from watersmeet_lab.simulate.ring.unit import RingOptions

CHOICES = st.sampled_from(("ric", "random", "worst", "first"))
SEEDS = st.integers(0, 99)
LAST = 200
"""A tick after everything."""


def simulate(
    asked: list[Query], data: Tuples, nodes: int, options: RingOptions, delay: int, seed: int = 0
) -> RingSimulation:
    run = RingSimulation(Ring.of(nodes, seed), STREAMS, [q.template for q in asked], options, delay=delay, seed=seed)
    for number, query in enumerate(asked):
        run.pose([query.template], query.since)
        if query.until < FOREVER:
            run.remove(number, query.until)
    run.publish(data)
    return run


def found(run: RingSimulation) -> dict[int, Counter[tuple[Any, ...]]]:
    assert run.run()
    delivered = run.registry.deliver(np.concatenate([run.unit.catalogue.layout.no_rows(), *run.answers]))
    return {q: rows_of(delivered.get(q)) for q in range(len(run.registry))}


def wanted(asked: list[Query], data: Tuples) -> dict[int, Counter[tuple[Any, ...]]]:
    return {n: expected(q, data) for n, q in enumerate(asked)}


def bounded(choice: Any, delay: int, more: int, seed: int = 0) -> RingOptions:
    return RingOptions(choice, delta=delay + more, delay=delay, rate_period=20, rate_valid=15, seed=seed)


@given(queries(), tuples(), st.integers(1, 12), CHOICES, st.integers(1, 30), st.integers(0, 40), SEEDS)
def test_nothing_is_lost_or_doubled_while_delays_stay_below_delta(asked, data, nodes, choice, delay, more, seed):
    run = simulate(asked, data, nodes, bounded(choice, delay, more, seed), delay, seed)
    assert found(run) == wanted(asked, data)


@given(queries(), tuples(), CHOICES, st.integers(1, 15), SEEDS)
def test_expiry_at_every_tick_changes_nothing(asked, data, choice, delay, seed):
    run = simulate(asked, data, 5, bounded(choice, delay, 0), delay, seed)
    for tick in range(LAST):
        run.at(tick, run.sweep)
    assert found(run) == wanted(asked, data)


@given(queries(), tuples(), CHOICES, SEEDS, st.lists(st.tuples(st.integers(0, 80), st.integers(0, 7)), max_size=6))
def test_nodes_that_join_leave_and_move_change_nothing(asked, data, choice, seed, changes):
    run = simulate(asked, data, 4, bounded(choice, 6, 3), 6, seed)

    def turn(node: int, tick: int) -> None:
        ring = run.unit.ring
        if node not in ring.places:
            run.change(ring.join(node, place(node, seed)))
        elif tick % 2 and len(ring) > 1:
            run.change(ring.leave(node))
        else:
            run.change(ring.move({node: place(node, tick + 1000)}))

    for tick, node in changes:
        run.at(tick, lambda node=node, tick=tick: turn(node, tick))
    assert found(run) == wanted(asked, data)


@given(queries(), tuples(), CHOICES, SEEDS, st.lists(st.integers(0, 90), min_size=1, max_size=4))
def test_stopping_and_restarting_changes_nothing(asked, data, choice, seed, ticks):
    plain, run = (simulate(asked, data, 5, bounded(choice, 6, 3), 6, seed) for _ in range(2))

    def restart() -> None:
        layout = run.unit.catalogue.layout
        run.unit.state = restore(
            run.unit.catalogue, {name: through_ipc(table) for name, table in save(run.unit.state).items()}
        )
        for instant in run._instants.values():
            instant.rows = [read_rows(layout, through_ipc(message(layout, rows))) for rows in instant.rows]

    for tick in ticks:
        run.at(tick, restart)
    assert found(run) == found(plain) == wanted(asked, data)
    assert np.array_equal(run.unit.load.sent, plain.unit.load.sent)


def through_ipc(table: pa.Table) -> pa.Table:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


@given(queries(distinct=False), tuples(), CHOICES, st.integers(2, 40), st.integers(0, 38), SEEDS)
def test_above_delta_answers_may_be_lost_but_never_wrong_or_doubled(asked, data, choice, delay, delta, seed):
    delta = min(delta, delay - 1)
    options = RingOptions(choice, delta=delta, delay=0, rate_period=20, rate_valid=15, attribute_rule=False, seed=seed)
    run = simulate(asked, data, 6, options, delay, seed)
    due = wanted(asked, data)
    assert all(rows <= due[query] for query, rows in found(run).items())


@given(templates(), tuples(), CHOICES, st.integers(1, 20), st.integers(0, 70), SEEDS)
def test_one_time_queries_see_what_was_published_before(template, data, choice, delay, tick, seed):
    run = RingSimulation(
        Ring.of(6, seed), STREAMS, [template], RingOptions(choice, delay=delay, rate_period=20), delay=delay, seed=seed
    )
    run.publish(data)
    run.ask(template, tick)
    run.at(LAST, run.sweep)
    assert found(run) == {0: expected(Query(template, -1, tick), data)}
    assert len(run.unit.state.rows) == 0


# ---------------------------------------------------------------- what the rules are for

TWO = CodedJoin(("r", "s"), (((0, "b"), (1, "b")),), ((0, "a"), (1, "a")))
THREE = CodedJoin(("r", "s", "p"), (((0, "a"), (1, "a")), ((1, "b"), (2, "b"))), ((0, "c"), (2, "a")))


def published(*rows: tuple[int, int, tuple[int, int, int]]) -> Tuples:
    """(stream, tick, values)."""
    ticks = np.array([tick for _, tick, _ in rows], np.int64)
    values = np.array([v for *_, v in rows], np.int64)
    return Tuples(np.array([s for s, *_ in rows], np.int64), ticks, ticks, values)


def lost(asked: Query, data: Tuples, options: RingOptions, delay: int) -> int:
    """How many answers are missing, over many seeds."""
    due = wanted([asked], data)[0]
    return sum(
        (due - found(simulate([asked], data, 8, replace(options, seed=seed), delay, seed))[0]).total()
        for seed in range(40)
    )


def test_example_1_without_altt_a_tuple_overtakes_its_query():
    asked, data = Query(TWO, 0), published((0, 1, (1, 2, 3)), (1, 30, (4, 2, 5)))
    assert wanted([asked], data)[0].total() == 1
    assert lost(asked, data, RingOptions("first", delta=0, delay=20), 20) > 0
    assert lost(asked, data, RingOptions("first", delta=20, delay=20), 20) == 0


def test_rewritten_queries_at_attribute_level_need_a_rule_that_the_paper_lacks():
    asked = Query(THREE, 0)
    data = published((1, 1, (1, 5, 0)), (2, 2, (7, 5, 0)), (0, 90, (1, 0, 3)))
    assert wanted([asked], data)[0].total() == 1
    options = {"delta": 10, "delay": 5, "rate_period": 1000}
    assert lost(asked, data, RingOptions("random", attribute_rule=False, **options), 5) > 0
    assert lost(asked, data, RingOptions("random", **options), 5) == 0


def test_one_start_does_not_enforce_a_window_between_all_pairs():
    window = tuple(tuple(0 if x == y else 10 for y in range(3)) for x in range(3))
    asked = Query(CodedJoin(THREE.streams, THREE.equalities, THREE.select, bounds=window), 0)
    tuples = published((2, 2, (0, 0, 0)), (0, 10, (0, 0, 0)), (1, 18, (0, 0, 0)))
    assert found(simulate([asked], tuples, 8, RingOptions(), 1))[0] == Counter()
    near = published((2, 8, (0, 0, 0)), (0, 10, (0, 0, 0)), (1, 18, (0, 0, 0)))
    assert found(simulate([asked], near, 8, RingOptions(), 1))[0].total() == 1


def test_example_2_distinct_returns_a_row_once_and_makes_it_once():
    data = published((0, 1, (1, 2, 3)), (1, 2, (9, 2, 4)), (1, 3, (9, 2, 5)))
    once = CodedJoin(TWO.streams, TWO.equalities, TWO.select, distinct=True)
    plain, pruned = (simulate([Query(t, 0)], data, 8, RingOptions("first"), 1) for t in (TWO, once))
    assert found(plain)[0] == Counter({(1, 9): 2})
    assert found(pruned)[0] == Counter({(1, 9): 1})
    assert (plain.answered, pruned.answered) == (2, 1)


def test_queries_of_one_template_share_their_rows():
    data = published(*((s, t, (0, 0, 0)) for t in range(0, 60, 2) for s in (0, 1)))
    asked = [Query(TWO, since) for since in (0, 10, 20, 30)]
    alone = simulate(asked[:1], data, 8, RingOptions(), 3)
    together = simulate(asked, data, 8, RingOptions(), 3)
    assert found(alone)[0] == wanted(asked, data)[0]
    assert found(together) == wanted(asked, data)
    assert len(together.unit.state.rows) == len(alone.unit.state.rows)
    assert together.unit.load.rows.sum() == alone.unit.load.rows.sum()


def test_delta_bounds_the_attribute_level():
    data = published(*((t % 3, t, (t % 2, 0, 1)) for t in range(60)))
    run = simulate([Query(TWO, 0)], data, 8, RingOptions(delta=7, delay=2), 2)
    run.at(70, run.sweep)
    assert run.run()
    assert (run.unit.state.tuples[:, 2] == 0).sum() == 0  # LEVEL
    forever = simulate([Query(TWO, 0)], data, 8, RingOptions(delta=UNBOUNDED), 2)
    forever.at(70, forever.sweep)
    assert forever.run()
    assert (forever.unit.state.tuples[:, 2] == 0).sum() == sum(len(STREAMS[("r", "s", "p")[t % 3]]) for t in range(60))
