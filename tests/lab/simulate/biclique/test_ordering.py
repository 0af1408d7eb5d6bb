"""Pairwise first-in-first-out, and the global order that signals release."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from watersmeet_lab.simulate.biclique.dispatcher import Dispatcher
from watersmeet_lab.simulate.biclique.ordering import Copy, Fifo, GlobalOrder, Signal, Stamp


@given(st.lists(st.sampled_from("xyz"), max_size=30), st.randoms(use_true_random=False))
def test_fifo_restores_every_senders_order(senders: list[str], chance: random.Random) -> None:
    numbers = dict.fromkeys("xyz", 0)
    sent = []
    for sender in senders:
        sent.append((sender, numbers[sender]))
        numbers[sender] += 1
    chance.shuffle(sent)
    inbox, got = Fifo(), []
    for sender, number in sent:
        got += inbox.take(sender, number, (sender, number))
    assert inbox.held == 0
    assert {s: [n for t, n in got if t == s] for s in "xyz"} == {s: list(range(numbers[s])) for s in "xyz"}


def copy(clock_us: int, dispatcher: int = 0, count: int = 0) -> Copy:
    return Copy(Stamp(clock_us, dispatcher, count), 0, 0, "store")


def test_copies_wait_for_every_dispatcher():
    order = GlobalOrder(2)
    for one in (copy(5, 0), copy(3, 1), copy(3, 0, 1), copy(3, 0, 0), copy(9, 1)):
        order.add(one)
    order.signal(Signal(0, 100))
    assert order.release() == []
    order.signal(Signal(1, 5))
    assert [c.stamp for c in order.release()] == [(3, 0, 0), (3, 0, 1), (3, 1, 0)]
    order.signal(Signal(1, 4))
    assert order.release() == []
    order.signal(Signal(1, 6))
    assert [c.stamp for c in order.release()] == [(5, 0, 0)]
    assert len(order) == 1


@given(st.lists(st.tuples(st.integers(-2, 3), st.booleans()), max_size=40), st.integers(-5, 5))
def test_a_signal_is_a_promise(events: list[tuple[int, bool]], offset_us: int) -> None:
    """No stamp after a signal is below it, even if time is set back; stamps are unique and grow."""
    dispatcher, now_us, stamps, least = Dispatcher(1, 2, offset_us), 0, [], -100
    for pause, is_signal in events:
        now_us += pause
        letters = list(
            dispatcher.signal(now_us) if is_signal else dispatcher.dispatch(now_us, 0, 0, [(0, "store"), (1, "probe")])
        )
        assert [unit for unit, _, _ in letters] == [0, 1]
        body = letters[0][2]
        if isinstance(body, Signal):
            least = body.clock_us
        else:
            assert body.stamp.clock_us >= least
            stamps.append(body.stamp)
    assert stamps == sorted(set(stamps))


def test_signals_and_copies_share_the_numbers_of_their_pair():
    dispatcher = Dispatcher(0, 2)
    letters = [
        *dispatcher.dispatch(0, 0, 0, [(1, "store")]),
        *dispatcher.signal(1),
        *dispatcher.dispatch(1, 0, 1, [(1, "probe")]),
    ]
    assert [(unit, number) for unit, number, _ in letters] == [(1, 0), (0, 0), (1, 1), (1, 2)]
