"""The halves of one-way joins by themselves: what they send, step by step."""

from __future__ import annotations

import numpy as np
import pytest

from tests.lab.simulate.sites.cases import SiteCase, found
from watersmeet.sites.planning.model import Algorithm, KeyPair, LinearPlan, OneWayStep, SiteQuery, SiteStream
from watersmeet_lab.simulate.sites import lockstep
from watersmeet_lab.simulate.sites.halves import Done, Sent
from watersmeet_lab.simulate.sites.model import SiteProtocol
from watersmeet_lab.simulate.sites.one_way import HALVES
from watersmeet_lab.simulate.sites.run import SiteRun
from watersmeet_lab.simulate.sites.streams import Sample, Streams, joint
from watersmeet_lab.simulate.sites.window import Arrival, Tuples, Values, Window

A, C, D, E, F = range(5)
"""Figure 5's values a, c, d, e, f."""


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def streams(
    a: list[tuple[int, int]], b: list[tuple[int, int]], *, window_us: int | None = 100, rows: int | None = None
) -> Streams:
    """(time, key) of two streams."""
    query = SiteQuery.of({"a": "A", "b": "B"}, ["a.k = b.k"], window_us=window_us, window_rows=rows)
    samples = {}
    for alias, tuples in (("a", a), ("b", b)):
        ts, k = np.array(tuples, np.int64).reshape(-1, 2).T
        samples[alias] = Sample(ts, {"k": k.copy()}, 1000.0, {"k": 5.0})
    return Streams(query, samples)


class Pair:
    """Both halves of the join from a to b, driven by hand: intervals of 10."""

    def __init__(self, algorithm: Algorithm, data: Streams) -> None:
        self.data = data
        made, self.keys = joint(data, frozenset("a"), frozenset("b"), data.base["b"])
        source, destination = HALVES[algorithm]
        self.source, self.destination = source(made), destination(made)

    def arrive(self, tick: int, low_ts: int = 0) -> list[Sent]:
        span = tick * 10, tick * 10 + 10
        return list(self.destination.arrive(tick, self.data.base["b"].arrival(span, self.keys), low_ts * 2))

    def probe(self, tick: int) -> list[Sent | Done]:
        return list(self.source.probe(tick, self.data.base["a"].head((tick * 10, tick * 10 + 10)), 0))

    def back(self, message: Sent) -> list[Sent | Done]:
        return list(self.source.receive(message, 0))

    def out(self, message: Sent) -> list[Sent | Done]:
        return list(self.destination.receive(message))


def members(done: Done) -> list[tuple[int, int]]:
    return sorted(zip(*(done.rows.members[a].tolist() for a in "ab"), strict=True))


def test_sm_s1_sends_a_tuple_once_and_counts_what_expires():
    """Algorithms 3, 7 and 8."""
    p = Pair(Algorithm.SM_S1, streams([(5, 1), (15, 1), (25, 2)], [(1, 1), (2, 2), (3, 3), (11, 1), (12, 3)]))
    assert p.arrive(0) == []
    [keys] = p.probe(0)
    assert (keys.payload.tolist(), keys.nbytes) == ([1], 5)
    [reply] = p.out(keys)
    assert (reply.payload.pos.tolist(), reply.nbytes) == ([0], 1000)
    [done] = p.back(reply)
    assert members(done) == [(0, 0)]

    p.arrive(1)
    [again] = p.out(p.probe(1)[0])
    assert again.payload.pos.tolist() == [3], "tuple 0 is at N_1 already"
    [done] = p.back(again)
    assert members(done) == [(1, 0), (1, 3)]

    [count] = p.arrive(2, low_ts=103)
    assert (count.payload[0], count.nbytes) == (1, 8), "of tuples 0 and 1, which expire, only 0 was sent"
    assert p.back(count) == []
    assert p.source.window.tuples.pos.tolist() == [3]
    [none] = p.out(p.probe(2)[0])
    assert (none.rows, none.nbytes) == (0, 0), "an empty answer is an answer"
    [done] = p.back(none)
    assert members(done) == []


def test_figure_5_of_sm_s2():
    """Example 4: V_2 and M_2 before and after an update of W_2, and what is shipped."""
    source, destination = (half(_joint()) for half in HALVES[Algorithm.SM_S2])
    # W_2 is <c,y>, <a,x>, <a,y>, <e,x>; full tuples of c and a have been asked for.
    window = Tuples(ints(0, 1, 2, 3), ints(0, 2, 4, 6), ints(10, 12, 14, 16), ints(C, A, A, E))
    [first] = destination.arrive(0, Arrival(window), 0)
    assert list(source.receive(first, 0)) == []
    [answer] = destination.receive(Sent("ask", 0, ints(C, A), 2, 10))
    assert list(source.receive(answer, 0)) == []
    assert destination.values.asked.tolist() == [True, True, False]
    # Insert <d,x>, <a,z>, <f,w>; remove <c,y> and <a,x>.
    new = Tuples(ints(4, 5, 6), ints(8, 10, 12), ints(18, 20, 22), ints(D, A, F))
    [update] = destination.arrive(1, Arrival(new), 13)
    assert update.payload.new.tolist() == [D, F]
    assert update.payload.counts.tolist() == [0, 2, 1, 1, 1]
    assert update.payload.full.pos.tolist() == [5]
    assert update.nbytes == 2 * 5 + 5 + 1000
    assert list(source.receive(update, 0)) == []
    for half in (source, destination):
        assert half.values.value.tolist() == [A, E, D, F]
        assert half.values.count.tolist() == [2, 1, 1, 1]
    assert source.window.tuples.pos.tolist() == [2, 5], "<a,y> and <a,z> are in the list of a"


def _joint():
    data = streams([(0, 1)], [(0, 1)])
    return joint(data, frozenset("a"), frozenset("b"), data.base["b"])[0]


def test_sm_s2_waits_for_an_answer_that_another_interval_has_asked_for():
    """With a line slower than an interval the next delta W'_2 would lack the tuples."""
    p = Pair(Algorithm.SM_S2, streams([(5, 1), (15, 1)], [(1, 1)]))
    [update] = p.arrive(0)
    p.back(update)
    [ask] = p.probe(0)
    assert p.probe(1) == [], "1 is asked for already"
    assert p.source.oldest() == 0
    [answer] = p.out(ask)
    first, second = p.back(answer)
    assert (members(first), members(second)) == ([(0, 0)], [(1, 0)])
    assert p.source.oldest() is None


def test_sm_d1_ships_rows_with_a_value_that_is_there():
    p = Pair(Algorithm.SM_D1, streams([(5, 1), (6, 2), (15, 7)], [(1, 1), (2, 3)]))
    [update] = p.arrive(0)
    assert (update.payload.new.tolist(), update.nbytes) == ([1, 3], 2 * 5 + 2)
    p.back(update)
    [rows] = p.probe(0)
    assert (rows.rows, rows.nbytes) == (1, 1000)
    assert members(*p.out(rows)) == [(0, 0)]
    assert p.arrive(1) == []
    assert p.probe(1) == [], "nothing is shipped that is empty"


def test_sm_d2_ships_keys_then_wanted_rows():
    p = Pair(Algorithm.SM_D2, streams([(5, 1), (6, 2), (7, 1), (15, 7)], [(1, 1), (2, 3)]))
    assert p.arrive(0) == []
    [keys] = p.probe(0)
    assert (keys.payload.tolist(), keys.nbytes) == ([1, 2], 10)
    [wanted] = p.out(keys)
    assert (wanted.payload.tolist(), wanted.nbytes) == ([1], 5)
    assert p.destination.oldest() == 0
    [rows] = p.back(wanted)
    assert rows.nbytes == 2000
    assert members(*p.out(rows)) == [(0, 0), (2, 0)]
    assert p.out(p.probe(1)[0]) == []
    assert p.destination.oldest() is None


def test_a_window_of_rows_tells_when_sent_tuples_leave_it():
    """The paper would remove as many tuples as have come, 2, from a copy that holds 1 of the 2."""
    p = Pair(
        Algorithm.SM_S1,
        streams([(5, 1), (15, 1), (16, 2), (25, 1)], [(1, 1), (2, 2), (11, 3), (14, 3)], window_us=None, rows=2),
    )
    p.arrive(0)
    [reply] = p.out(p.probe(0)[0])
    assert reply.nbytes == 1008, "a tuple travels with its number"
    p.back(reply)
    [told] = p.arrive(1)
    assert told.payload[0] == 0, "nothing is removed yet"
    assert told.payload[1].tolist() == [11 * 2 - 1], "tuple 0 leaves at 11; tuple 1 was not sent"
    p.back(told)
    [reply] = p.out(p.probe(1)[0])
    [done] = p.back(reply)
    assert members(done) == []


def test_a_tuple_that_comes_and_leaves_a_window_of_rows_in_one_interval():
    """SM-S2 tells of b's tuple 1 in the message in which it is out of the window already."""
    p = Pair(Algorithm.SM_S2, streams([(5, 0), (21, 0)], [(1, 0), (20, 0), (21, 0)], window_us=None, rows=1))
    p.back(p.arrive(0)[0])
    [done] = p.back(*p.out(p.probe(0)[0]))
    assert members(done) == [(0, 0)]
    [update] = p.arrive(2)
    assert update.payload.full.until.tolist()[0] == 21 * 2 - 1
    p.back(update)
    [done] = p.probe(2)
    assert members(done) == [], "b's last row up to 21 is its tuple of 21, which is younger than the head"


def test_values_keep_their_order():
    v, copy = Values(), Values()
    new = v.add(ints(7, 3, 7, 5))
    assert new.tolist() == [7, 3, 5]
    copy.append(new, v.count.copy())
    v.subtract(ints(3))
    v.add(ints(9, 5))
    copy.append(ints(9), ints(0))
    copy.count = v.count.copy()
    for half in (v, copy):
        half.drop_empty()
        assert half.value.tolist() == [7, 5, 9]
        assert half.count.tolist() == [2, 2, 1]
    assert v.find(ints(5, 3, 9)).tolist() == [1, -1, 2]


def test_a_window_is_a_queue_by_expiry():
    w = Window(Tuples(ints(0, 1), ints(0, 1), ints(10, 20), ints(5, 5)))
    w.insert(Tuples(ints(2), ints(2), ints(15), ints(6)))
    assert w.tuples.pos.tolist() == [0, 2, 1]
    gone, sent = w.remove_before(16)
    assert gone.pos.tolist() == [0, 2]
    assert not sent.any()
    w.remove_first(1)
    assert len(w) == 0


@pytest.mark.parametrize("algorithm", list(Algorithm))
def test_bytes_of_the_simple_joins_bound_those_of_matches(algorithm):
    """One tuple in ten finds a match; what a semijoin ships is its matches and keys."""
    rng = np.random.default_rng(1)
    a = [(t, int(k)) for t, k in zip(range(0, 4000, 2), rng.integers(0, 1000, 2000), strict=True)]
    b = [(t, int(k)) for t, k in zip(range(0, 4000, 4), rng.integers(0, 100, 1000), strict=True)]
    data = streams(a, b, window_us=500)
    made, keys = joint(data, frozenset("a"), frozenset("b"), data.base["b"])
    spans = [(n, n + 50) for n in range(0, 4000, 50)]
    shipped = lockstep.run(
        algorithm, made, [data.base["a"].head(s) for s in spans], [data.base["b"].arrival(s, keys) for s in spans],
        [s[0] * 2 for s in spans],
    )  # fmt: skip
    total = (shipped.out_bytes + shipped.back_bytes).sum()
    whole = {Algorithm.SP_S: 1_000_000, Algorithm.SP_D: 2_000_000}
    if algorithm in whole:
        assert total == whole[algorithm]
    elif algorithm.at_source:
        assert total < 1.1 * whole[Algorithm.SP_S]
    else:
        assert total < 0.15 * whole[Algorithm.SP_D]


@pytest.mark.parametrize("algorithm", list(Algorithm))
def test_what_leaves_a_window_of_rows_goes_before_what_comes(algorithm: Algorithm) -> None:
    """What was here before expires first: a queue that had the new tuple before it dropped the wrong one."""
    streams = tuple(SiteStream(a, "A", None, 1) for a in "abc")
    edges = tuple(KeyPair((x, "k"), (y, "k")) for x, y in ("ab", "ac", "bc"))
    query = SiteQuery(streams, edges)
    case = SiteCase(query, {"a": [(0, 0, 0), (10, 0, 0), (11, 0, 0)], "b": [(0, 0, 0)], "c": [(0, 0, 0), (10, 0, 0)]})
    simple = {h: tuple(OneWayStep(to, Algorithm.SP_S) for to in "abc" if to != h) for h in "ab"}
    plan = LinearPlan(query, {**simple, "c": (OneWayStep("b", Algorithm.SP_S), OneWayStep("a", algorithm))})
    assert found(case, SiteRun(plan, case.streams, protocol=SiteProtocol(10)).run()) == case.expected()
