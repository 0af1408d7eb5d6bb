"""A run is repeated if it starved, and for no other reason."""

from __future__ import annotations

import pytest

from tests.starved import SAID, TRIES, until_ended


class Run:
    """A streaming query that ends as it is told."""

    def __init__(self, says: str | None) -> None:
        self.says = says

    def awaitTermination(self) -> None:
        if self.says is not None:
            raise RuntimeError(self.says)


def test_a_run_that_starved_is_repeated() -> None:
    runs = iter([Run(f"Python worker {SAID}."), Run(f"Python worker {SAID}."), Run(None), Run(None)])
    assert [run.says is None for run in until_ended(lambda: next(runs))] == [False, False, True]


@pytest.mark.parametrize(("says", "runs"), [("division by zero", 1), (f"Python worker {SAID}.", TRIES)])
def test_another_error_is_raised_and_so_is_the_last(says: str, runs: int) -> None:
    started = []
    with pytest.raises(RuntimeError, match=says):
        until_ended(lambda: started.append(says) or Run(says))
    assert len(started) == runs
