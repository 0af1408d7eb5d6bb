"""What `bench hot --watching` measures: the calls of what watches, and no others."""

from __future__ import annotations

from watersmeet.operators.balance import Balance
from watersmeet.operators.join import JoinUnits
from watersmeet_lab.bench.hot import Load, _prepare, time_watching

LOAD = Load(rows=100, batches=6, share=0.0, window_us=1000)


def test_every_run_makes_the_same_calls_and_nothing_stays_wrapped() -> None:
    plain, counted = (JoinUnits._watch, Balance.settle), []
    for _ in range(2):
        with time_watching() as spent:
            _prepare(LOAD, "auto", 2).run(LOAD.rows)
        counted.append(len(spent))
    assert counted == [LOAD.batches * (2 * 2 + 1)] * 2  # units x sides, and once after the batch
    assert (JoinUnits._watch, Balance.settle) == plain


def test_plain_hash_routing_does_not_watch() -> None:
    with time_watching() as spent:
        _prepare(LOAD, "hash", 2).run(LOAD.rows)
    assert spent == []
