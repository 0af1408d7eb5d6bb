"""Whoever waits for a query gets the error that ended it, whatever Spark has wrapped around it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from watersmeet.errors import CheckpointError, DataError
from watersmeet.runtime.rounds.handle import Handle
from watersmeet.runtime.spark.failures import from_worker, shorten

WORKER = """[STREAM_FAILED] Query [id = 96fe, runId = 810e] terminated with exception: [PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "worker.py", line 4327, in invoke_udf
    run_process()
watersmeet.errors.CheckpointError: the checkpoint belongs to another query:
  SELECT 1
restore it
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ==="""


class Wrapped(Exception):
    """What Spark raises."""


def handle(said: str, known: BaseException | None = None) -> Handle:
    def wait(*_: Any) -> None:
        raise Wrapped(said)

    query = SimpleNamespace(awaitTermination=wait, exception=lambda: Wrapped(said))
    return Handle(query, SimpleNamespace(error=known))


def test_an_error_of_ours_is_taken_out_of_sparks():
    error = from_worker(WORKER)
    assert isinstance(error, CheckpointError)
    assert str(error) == "the checkpoint belongs to another query:\n  SELECT 1\nrestore it"
    assert from_worker("[STREAM_FAILED] something else") is None
    first = from_worker(
        "thrown from the Python worker: watersmeet.errors.DataError: too wide\n\nTraceback\n SQLSTATE: 3"
    )
    assert (type(first), str(first)) == (DataError, "too wide")


@pytest.mark.parametrize(
    ("said", "known", "kind", "text"),
    [
        ("[STREAM_FAILED] py4j", KeyError("price"), KeyError, "'price'"),
        ("[STREAM_FAILED] py4j", DataError("a.x overflows"), DataError, "a.x overflows"),
        ("[STREAM_FAILED] py4j", Wrapped(WORKER), CheckpointError, "the checkpoint belongs"),
        ("[STREAM_FAILED] py4j", Wrapped("no such table"), Wrapped, "no such table"),
        (WORKER, None, CheckpointError, "the checkpoint belongs"),
        ("executor lost", None, Wrapped, "executor lost"),
        ("[STREAM_FAILED] py4j", SystemExit(3), Wrapped, "py4j"),
    ],
)
def test_the_handle_raises_what_was_raised(said, known, kind, text):
    failed = handle(said, known)
    for timeout in (None, 1.0):
        with pytest.raises(kind, match=text) as raised:
            failed.await_termination(timeout)
        assert raised.type is kind
    assert type(failed.exception) is kind
    assert text in str(failed.exception).splitlines()[0]
    assert kind is Wrapped or isinstance(raised.value.__cause__, Wrapped), "Spark's account is there, behind it"


def test_a_cause_of_the_users_own_is_kept():
    known = KeyError("price")
    known.__cause__ = ValueError("the reason")
    with pytest.raises(KeyError) as raised:
        handle("[STREAM_FAILED] py4j", known).await_termination()
    assert str(raised.value.__cause__) == "the reason"


DIVIDED = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times
org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to tolerate divisor being 0. SQLSTATE: 22012
== SQL (line 1, position 1) ==
a.x / a.y
^^^^^^^^^

\tat org.apache.spark.sql.errors.QueryExecutionErrors
SQLSTATE: XXKST"""


def test_a_value_that_spark_has_no_result_for_is_one_message() -> None:
    with pytest.raises(DataError) as raised:
        handle(DIVIDED).await_termination()
    assert str(raised.value) == (
        "a value has no result in an expression of the query: Division by zero. Use `try_divide` to tolerate divisor being 0. (DIVIDE_BY_ZERO, in a.x / a.y); "
        "change the expression, leave such rows out with a condition on their stream, or have them named and set aside: on_error='set aside'"
    )
    assert from_worker("[STREAM_FAILED] [PATH_NOT_FOUND] no such path SQLSTATE: 42K03") is None


def test_the_worker_s_traceback_is_a_note() -> None:
    error = from_worker(WORKER)
    assert error is not None
    assert error.__notes__ == [
        "in a worker: Traceback (most recent call last):\n"
        '  File "worker.py", line 4327, in invoke_udf\n    run_process()\n'
        "watersmeet.errors.CheckpointError: the checkpoint belongs to another query:"
    ]


def test_query_and_batch_are_named_before_the_worker_s_traceback() -> None:
    known = Wrapped(WORKER)
    known.add_note("in batch 7 of SELECT a.k FROM s a")
    with pytest.raises(CheckpointError) as raised:
        handle("[STREAM_FAILED] py4j", known).await_termination()
    first, second = raised.value.__notes__
    assert first == "in batch 7 of SELECT a.k FROM s a"
    assert second.startswith("in a worker: Traceback")


def test_a_long_query_is_cut() -> None:
    assert len(shorten("SELECT " + "x, " * 1000)) < 500
