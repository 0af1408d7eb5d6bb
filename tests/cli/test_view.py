"""Progress as lines and as a table, and errors as messages."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime

import pytest
import typer
from rich.console import Console

from watersmeet.cli.failure import OURS, THEIRS, essence, report_errors
from watersmeet.cli.spark import NOISY, silence
from watersmeet.cli.view import TotalsView, line
from watersmeet.cli.watch import QueryWatch, Totals
from watersmeet.errors import QueryError
from watersmeet.runtime.progress import Progress


def batch(number: int = 0, seconds: float = 2.0, results: int = 5) -> Progress:
    return Progress(
        batch_id=number,
        seconds=seconds,
        input_rows=1000,
        results=results,
        late={"clicks": 2},
        watermarks={"clicks": datetime(2026, 1, 1, 12, tzinfo=UTC), "orders": None},
        state_rows={"c": 30, "d": 4, "o": 10},
        state_bytes=99,
        unit_rows={0: 600, 1: 400},
    )


@pytest.fixture
def totals():
    found = Totals({"c": "clicks", "d": "clicks", "o": "orders"})
    found.add(batch(0, seconds=8.0))
    found.add(batch(1))
    return found


def test_totals(totals):
    assert (totals.results, totals.rows, totals.late["clicks"], totals.late["orders"]) == (10, 2000, 4, 0)
    assert totals.state_rows == {"clicks": 34, "orders": 10}
    assert totals.rows_per_second == 500


def test_one_line_per_batch_where_there_is_no_terminal(totals):
    console = Console(file=io.StringIO(), width=40)
    view = TotalsView(totals, console)
    with view.show():
        view.batch(batch(1))
    text = console.file.getvalue()
    assert text.count("\n") == 1
    assert "batch 1: 1,000 rows in 2.0 s (500 rows/s), 5 results (10 in all), state 44 rows, late 2" in text
    assert "clicks 2026-01-01 12:00:00, orders -" in line(batch(), totals)


def test_the_table_on_a_terminal(totals):
    console = Console(file=io.StringIO(), width=120, force_terminal=True)
    view = TotalsView(totals, console)
    with view.show():
        view.batch(batch(1))
        view.rows(3, ["id"], [("7",), ("8",)])
    text = console.file.getvalue()
    for part in ("500 rows/s", "10 results", "clicks", "2026-01-01 12:00:00", "state rows", "3 results, the first 2"):
        assert part in text


def test_before_the_first_batch_the_wait_is_explained():
    console = Console(file=io.StringIO(), width=120)
    console.print(TotalsView(Totals({"a": "s"}), console).render())
    assert "waiting for the first micro-batch" in console.file.getvalue()


class Event:
    """A progress event as Spark gives it."""

    def __init__(self, number: int, with_figures: bool = True) -> None:
        unit = {"unit": 0, "rows_in": {}, "late": {}, "results": 9, "watermarks": {"s": 5}, "retained": {}, "bytes": 1}
        figures = {"watersmeet-x": {"units": [json.dumps(unit)]}} if with_figures else {}
        self.batchId, self.timestamp = number, f"{number}"
        self.observedMetrics = {"results": {"rows": 7}}
        self.json = json.dumps({"batchId": number, "numInputRows": 1, "durationMs": {}, "observedMetrics": figures})


class Query:
    """A query that ends after its events."""

    def __init__(self, *events: Event) -> None:
        self.recentProgress = list(events)
        self.lastProgress = events[-1] if events else None

    def awaitTermination(self, seconds: float) -> bool:
        return True


def test_every_batch_is_shown_once_and_results_are_counted_at_the_end_of_the_query():
    totals, shown = Totals({"a": "s"}), []
    watch = QueryWatch(
        Query(Event(0), Event(1), Event(2, with_figures=False)), totals, lambda p: shown.append(p.batch_id)
    )
    watch.until(lambda: False)
    watch.catch_up()
    assert shown == [0, 1]
    assert totals.results == 14


WORKER = """[STREAM_FAILED] Query [id = 96fe, runId = 810e] terminated with exception: [PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "worker.py", line 4327, in invoke_udf
    run_process()
watersmeet.errors.CheckpointError: the checkpoint belongs to another query:
  SELECT 1
restore it
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ==="""


def test_of_an_error_of_others_the_last_line_is_told():
    assert essence(WORKER.replace("watersmeet.errors.CheckpointError", "ValueError")).startswith("ValueError: ")


def spark_error(text: str) -> Exception:
    kind = type("StreamingQueryException", (Exception,), {"__module__": "pyspark.errors.exceptions.captured"})
    return kind(text)


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (QueryError("no column [x]"), OURS, "no column [x]"),
        (spark_error(WORKER), OURS, "the checkpoint belongs to another query"),
        (
            spark_error("[STREAM_FAILED] Query terminated with exception: disk is full\n\tat x"),
            THEIRS,
            "Spark failed: disk is full",
        ),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_errors_become_messages_and_codes(capsys, tmp_path, error, code, said):
    with pytest.raises(typer.Exit) as end, report_errors(tmp_path / "spark.log"):
        raise error
    assert end.value.exit_code == code
    text = capsys.readouterr().err
    assert said in text
    assert ("spark.log" in text) == (code == THEIRS)
    assert "SQLSTATE" not in text
    assert "Traceback" not in text.partition("in a worker: ")[0], "the worker's own comes after the message"


def test_a_defect_is_not_hidden():
    with pytest.raises(ZeroDivisionError), report_errors():
        raise ZeroDivisionError


def test_what_a_query_fails_with_is_not_told_twice(capfd: pytest.CaptureFixture[str]) -> None:
    """PySpark tells it as JSON on the terminal; there the command says it in words."""
    logger_module = pytest.importorskip("pyspark.logger")
    silence()
    for name in NOISY:
        logger_module.PySparkLogger.getLogger(name).exception("[DIVIDE_BY_ZERO] ...", errorClass="DIVIDE_BY_ZERO")
        logger_module.PySparkLogger.getLogger(name).disabled = False
    assert capfd.readouterr().err == ""
