"""`watersmeet/__init__.py` is the whole public API, and nothing else is."""

from __future__ import annotations

import inspect
import json
import pickle
import subprocess
import sys
import tomllib
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet import errors
from watersmeet.plan.options import Choices, Options


def parameters(function: object) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(function).parameters)


PAIR = "SELECT a.s, b.t FROM s a, t b WHERE a.k = b.k WINDOW = 1 SECOND"
ERRORS = {name for name, value in vars(errors).items() if isinstance(value, type)}


def test_exactly_these_names_are_public():
    functions = {"sql", "join", "local", "observe", "state", "subscriptions", "testing"}
    streams = {"Stream", "RemoteStream", "Table", "Sites", "Line", "Scaling", "Quotas"}
    made = {"Query", "JoinBuilder", "Plan", "Explanation", "Counts", "Handle", "Progress", "Subscriptions"}
    assert set(wm.__all__) == functions | streams | made | ERRORS
    assert len(wm.__all__) == len(set(wm.__all__))
    assert all(getattr(wm, name).__doc__ for name in wm.__all__)
    assert set(dir(wm)) == {*wm.__all__, "__version__"}
    assert (Path(wm.__file__).parent / "py.typed").exists()


def test_the_version_is_that_of_the_package():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert wm.__version__ == project["version"]


def test_names_are_loaded_when_they_are_used_and_stay_what_they_are():
    code = """if True:
        import sys
        import watersmeet.runtime.rounds.worker, watersmeet.runtime.stream.dataframe
        assert "sqlglot" not in sys.modules, "every Python worker of Spark would load it"
        import watersmeet as wm
        from watersmeet.sql.parse import parse
        assert callable(wm.sql) and wm.local.run and set(wm.__all__) <= set(dir(wm))
        assert callable(wm.subscriptions), "wm.local has loaded a package of this name"
    """
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = wm.nonsense


def test_stream():
    found = parameters(wm.Stream)
    assert list(found) == ["source", "time", "lateness", "idle", "max_ahead", "site"]
    assert all(found[name].kind is inspect.Parameter.KEYWORD_ONLY for name in list(found)[1:])
    assert found["time"].default is inspect.Parameter.empty
    assert found["idle"].default is None


TAKING_STREAMS = {
    "sql": lambda *given, **named: wm.sql(PAIR, *given, **named).explain(),
    "join": lambda *given, **named: wm.join(*given, **named).on("s.k = t.k").explain(),
    "run": lambda *given, **named: wm.local.run(PAIR, *given, **named),
    "explain": lambda *given, **named: wm.local.explain(PAIR, *given, **named),
    "local subscriptions": wm.local.subscriptions,
    "subscriptions": lambda *given, **named: wm.subscriptions(*given, **{"checkpoint": "c", "sink": "x"} | named),
}
"""All calls that take streams; the last needs Spark to go on."""
RUNNING = [call for call in TAKING_STREAMS if call != "subscriptions"]


@pytest.mark.parametrize("call", RUNNING)
def test_streams_are_given_in_a_mapping_or_as_keywords_or_both(call):
    take, given = TAKING_STREAMS[call], streams()
    shown = [repr(take(given)), repr(take(**given)), repr(take({"s": given["s"]}, t=given["t"]))]
    if call != "local subscriptions":  # which show their address
        assert len(set(shown)) == 1


@pytest.mark.parametrize("call", TAKING_STREAMS)
@pytest.mark.parametrize(
    ("given", "named", "said"),
    [
        ((), {}, r"needs streams: .*\{'clicks': .*\}.* clicks=\.\.\."),
        (({},), {}, "needs streams: "),
        (({"s": "S"},), {"s": "S"}, r"stream s is given twice, in the mapping and as s="),
        (({"s": "S"},), {"units": "S"}, r"units= is an option of .*\{'units': .*\}"),
        (("S",), {}, r"a Stream without a name: .*\{'clicks': "),
        (({7: "S"},), {}, "a stream is called 7: names are texts"),
        ((), {"s": "S", "unit": 4}, r"no option unit=4 \(did you mean units\?\)"),
        (
            (),
            {"s": "S", "clicks": [1]},
            r"clicks=list: .*wm\.Stream\(clicks, time=\.\.\.\).* or name one of the options .*units",
        ),
    ],
)
def test_streams_that_are_unclear_are_named_with_the_remedy(call, given, named, said):
    def real(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: real(v) for name, v in value.items()}
        return streams()["s"] if value == "S" else value

    with pytest.raises(wm.WatersmeetError, match=said):
        TAKING_STREAMS[call](*map(real, given), **real(named))


def test_a_stream_in_a_mapping_may_be_called_like_an_option():
    text = PAIR.replace("FROM s a, t b", "FROM units a, network b")
    named = {"units": tables()["s"], "network": tables()["t"]}
    assert wm.local.run(text, named, units=2).num_rows == 1
    wrapped = {name: wm.Stream(table, time="ts") for name, table in named.items()}
    assert wm.sql(text, wrapped, units=2).plan.units == 2


@pytest.mark.parametrize("name", ["batch_rows", "late", "network", "now", "protocol", "sites", "timezone", "kernel"])
def test_a_table_is_no_option(name):
    with pytest.raises(wm.StreamError, match=rf"{name}= is an option of run\(\), .*{{'{name}': table}}"):
        wm.local.run(PAIR, **{name: tables()["s"]})


def test_only_a_feed_is_a_dataframe():
    how = {"checkpoint": "c", "sink": "x"}
    with pytest.raises(wm.StreamError, match="feed= is an option of subscriptions"):
        wm.subscriptions(streams(), feed=streams()["s"], **how)
    frame = SimpleNamespace(isStreaming=True, dtypes=[])
    with pytest.raises(wm.StreamError, match="name= is an option of subscriptions"):
        wm.subscriptions(streams(), name=frame, **how)
    with pytest.raises(wm.StreamError, match=r"stream s is a Table: subscriptions\(\) needs Spark DataFrames"):
        wm.subscriptions(streams(), feed=frame, **how)


def test_counts_are_an_object():
    found = wm.local.run(PAIR, tables(), batch_rows=1)
    counts = wm.local.counts(found)
    assert counts == wm.Counts.of(found)
    assert (counts.late, counts.retained, counts.batches) == ({"s": 0, "t": 0}, {"a": 1, "b": 1}, 1)
    assert (counts.kernels, counts.pruned, counts.drivers, counts.kept) == ({"hw": 2}, 0, {"a, b": 1}, 0)
    assert (counts.shipped, counts.changes, counts.simulated) == ({}, (), {})
    assert repr(counts) == "Counts: 1 batch, nothing late, retained a 1, b 1, kernels hw 2"
    assert wm.local.counts(found.slice(0, 0)) == counts
    distinct = wm.local.run(PAIR.replace("SELECT", "SELECT DISTINCT"), tables())
    assert wm.local.counts(distinct).kept == 1


@pytest.mark.parametrize("table", [pa.table({"k": [1]}), None])
def test_a_table_without_counts_is_named(table):
    with pytest.raises(wm.DataError, match=r"no result of wm\.local\.run"):
        wm.local.counts(table)


def test_counts_survive_the_way():
    shipped, sites = {("a>b", "c"): (1, 2, 3)}, ("from x to y",)
    counts = wm.Counts(late={"s": 1}, batches=2, shipped=shipped, changes=sites, simulated={"rows": 7})
    assert wm.Counts.of(counts.attach(tables()["s"])) == counts
    said = "Counts: 2 batches, late s 1, 3 bytes between sites, 1 change of plan, simulated: rows"
    assert repr(counts) == said


def test_local_run():
    assert list(parameters(wm.local.run))[:3] == ["text", "tables", "batch_rows"]
    for option in (
        {"kernel": "auto"},
        {"kernel": "nlw"},
        {"order": "auto"},
        {"order": ["b", "a"]},
        {"units": 2},
        {"routing": "auto"},
        {"driver": "auto"},
    ):
        assert (
            wm.local.run("SELECT a.s FROM s a, t b WHERE a.k = b.k WINDOW = 1 SECOND", tables(), **option).num_rows == 1
        )


def test_every_error_is_a_watersmeet_error():
    tree = [error for error in vars(errors).values() if isinstance(error, type) and issubclass(error, BaseException)]
    assert len(tree) > 1
    assert all(issubclass(error, wm.WatersmeetError) for error in tree)


def tables() -> dict[str, pa.Table]:
    ts = pa.array([1_704_067_200_000_000], pa.timestamp("us", tz="UTC"))
    return {name: pa.table({"k": [1], name: [7], "ts": ts}) for name in ("s", "t")}


def test_a_query_end_to_end():
    out = wm.local.run("SELECT a.s, b.t FROM s a, t b WHERE a.k = b.k WINDOW = 1 SECOND", tables())
    assert isinstance(out, pa.Table)
    assert out.to_pydict() == {"s": [7], "t": [7]}


def test_the_time_of_a_plain_table_is_its_only_timestamp_or_the_one_named_ts():
    text = "SELECT a.s, b.t FROM s a, t b WHERE a.k = b.k WINDOW = 1 SECOND"
    only = {name: table.rename_columns(["k", name, "at"]) for name, table in tables().items()}
    assert wm.local.run(text, only).num_rows == 1
    two = {name: table.append_column("at", table["ts"]) for name, table in tables().items()}
    assert wm.local.run(text, two).num_rows == 1
    unclear = {name: table.append_column("other", table["at"]) for name, table in only.items()}
    with pytest.raises(wm.WatersmeetError, match="time"):
        wm.local.run(text, unclear)


def test_a_named_time_column():
    renamed = {name: wm.Stream(table.rename_columns(["k", name, "at"]), time="at") for name, table in tables().items()}
    assert wm.local.run("SELECT a.s FROM s a, t b WHERE a.k = b.k WINDOW = 1 SECOND", renamed).num_rows == 1


def test_explain_needs_no_data_to_run():
    streams = {name: wm.Stream(table, time="ts") for name, table in tables().items()}
    query = wm.sql("SELECT a.s FROM s a, t b WHERE a.k = b.k WINDOW = 1 SECOND", **streams)
    text = query.explain()
    assert isinstance(text, str)
    assert "1 s" in text
    assert "unbounded" in wm.sql("SELECT a.s FROM s a, t b WHERE a.k = b.k", **streams).explain().lower()


def streams() -> dict[str, wm.Stream]:
    return {name: wm.Stream(table, time="ts", lateness="10 seconds") for name, table in tables().items()}


def test_the_fluent_form_is_the_same_query():
    query = wm.join(a=streams()["s"], b=streams()["t"]).on("a.k = b.k").window("a", "b", "10s")
    assert "10 s" in query.explain()


def test_a_builder_shows_every_method_with_its_type():
    for name in (
        "on",
        "where",
        "window",
        "within",
        "dwindow",
        "path",
        "range",
        "rows",
        "tumble_rows",
        "select",
        "distinct",
        "group_by",
        "cross",
    ):
        method = getattr(wm.JoinBuilder, name)
        assert method.__annotations__["return"] == "Self"
        assert method.__doc__
    for name in ("explain", "dataframe", "start"):
        assert getattr(wm.JoinBuilder, name) is getattr(wm.Query, name)
    assert set(Choices.__annotations__) == {f.name for f in fields(Options)}


def test_setting_one_option_keeps_the_others():
    builder = wm.join(a=streams()["s"], b=streams()["t"], kernel="nlw").on("a.k = b.k").window("10s")
    plan = builder.options(units=3).options(driver="timestamp").query().plan
    assert (plan.kernel, plan.units, plan.driver) == ("nlw", 3, "timestamp")


@pytest.mark.parametrize(
    ("name", "said"), [("windw", "window"), ("groupBy", "group_by"), ("dwindows", "dwindow"), ("toPandas", "it has ")]
)
def test_a_misspelt_method_is_told_the_right_one(name, said):
    builder = wm.join(a=streams()["s"], b=streams()["t"])
    with pytest.raises(AttributeError, match=f"no method '{name}'.*{said}"):
        getattr(builder, name)
    assert not hasattr(builder, "__wrapped__")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: wm.sql("SELECT 1", **streams(), unit=4), r"no option unit=4 \(did you mean units\?\)"),
        (lambda: wm.join(**streams(), kernal="hw"), "did you mean kernel"),
        (lambda: wm.join(**streams()).options(unit=4), "did you mean units"),
        (lambda: wm.join(**streams()).options(nonsense=4), "no option nonsense; there are bandwidth, driver"),
        (lambda: wm.local.run(PAIR, tables(), unit=4), "did you mean units"),
        (lambda: wm.sql("SELECT 1", **streams(), unit=tables()["s"]), r"wrap it as wm\.Stream"),
        (lambda: wm.join(**streams()).on("s.k = t.k").explain("long"), r"explain\('long'\): give 'short' or 'full'"),
    ],
)
def test_a_misspelt_option_is_told_the_right_one(call, said):
    with pytest.raises(wm.WatersmeetError, match=said):
        call()


def test_queries_streams_and_builders_show_themselves():
    assert repr(wm.sql(PAIR, **streams())).splitlines() == [
        f"Query    {PAIR}",
        "streams  s (time ts, lateness 10 s), t (time ts, lateness 10 s)",
        "windows  |b - a| <= 1 s",
        "result   s, t",
    ]
    assert repr(streams()["s"]) == "Stream of a Table (time ts, lateness 10 s)"
    live = wm.Stream(SimpleNamespace(isStreaming=True), time="at", idle="1 minute", site="paris")
    assert repr(live) == "Stream of a streaming SimpleNamespace (time at, lateness 0 s, idle 1 min, at paris)"
    assert repr(wm.join(a=streams()["s"], b=streams()["t"]).on("a.k = b.k")).startswith("JoinBuilder: SELECT * FROM ")
    assert repr(wm.sql(PAIR, **streams()).plan).startswith("Plan(a, b; 8 units, kernel hw, fingerprint ")
    assert repr(wm.local.subscriptions(streams())) == "Subscriptions in process over s, t: 0 queries, 0 batches"


def progress(**more: Any) -> wm.Progress:
    marks = {"s": datetime(2026, 1, 1, 0, 0, 5, tzinfo=UTC), "t": None}
    figures = {"late": {"s": 2}, "state_rows": {"a": 1500, "b": 0}, "state_bytes": 48_200, "unit_rows": {}, **more}
    return wm.Progress(7, 0.5, 1000, 321, watermarks=marks, **figures)


def test_progress_and_handles_show_themselves():
    shown = [
        "batch 7: 1,000 rows in 0.50 s, 2,000 rows/s, 321 results, 2 late (s 2)",
        "watermarks s 2026-01-01 00:00:05, t -",
        "state      1,500 rows (a 1,500, b 0), 48.2 kB",
    ]
    assert repr(progress()).splitlines() == shown
    assert repr(progress(scaled=("one more unit",))).splitlines() == [*shown, "next       one more unit"]
    query = SimpleNamespace(name="orders", isActive=True, exception=lambda: None)
    protocol = SimpleNamespace(told=[], error=None)
    handle = wm.Handle(query, protocol)
    assert repr(handle) == "Handle of 'orders': running, before its first batch"
    protocol.told.append(SimpleNamespace(progress=progress))
    assert repr(handle).splitlines() == ["Handle of 'orders': running", *shown]
    query.isActive, query.name = False, None
    assert repr(handle).splitlines()[0] == "Handle: ended"
    query.exception, protocol.error = lambda: RuntimeError("Spark's account"), KeyError("price")
    assert repr(handle).splitlines()[0] == "Handle: failed with KeyError: 'price'"


def test_explain_is_short():
    lines = wm.sql(PAIR, **streams()).explain().splitlines()
    assert lines[:2] == [
        "windows    |b - a| <= 1 s",
        "state      a 1 s + 10 s, b 1 s + 10 s of event time and lateness",
    ]
    assert lines[2].startswith("runs on    local: hash over 8 units")
    assert lines[3].startswith("placement  fingerprint ")
    assert len(lines) == 4
    full = wm.sql(PAIR, **streams()).explain("full")
    assert len(full.splitlines()) > 10
    assert lines[3].split(";")[0] in full


def test_an_explanation_is_text_and_facts():
    query = wm.sql(PAIR, **streams(), units=4)
    for found in (query.explain(), query.explain("full")):
        assert repr(found) == str(found) == "\n".join(found.to_dict()["lines"])
        facts = found.to_dict()
        assert json.loads(json.dumps(facts)) == facts
        assert facts["query"] == PAIR
        assert facts["runtime"].startswith("local")
        assert {a: (i["stream"], i["time"], i["lateness_us"]) for a, i in facts["aliases"].items()} == {
            "a": ("s", "ts", 10_000_000),
            "b": ("t", "ts", 10_000_000),
        }
        assert facts["windows"] == [
            {"first": "a", "second": "b", "least_us": -1_000_000, "most_us": 1_000_000, "written": True}
        ]
        assert facts["state"] == [
            {"side": side, "kept_us": 1_000_000, "late_us": 10_000_000, "rows": None} for side in ("a", "b")
        ]
        assert facts["routing"] == [{"sides": ["a", "b"], "kind": "hash", "units": 4}]
        assert (facts["kernel"], facts["units"], facts["warnings"]) == ("hw", 4, [])
        assert (facts["keys"], facts["fingerprint"]) == (["a.k = b.k"], query.plan.fingerprint())
    facts["aliases"].clear()
    assert found.to_dict()["aliases"], "facts are not shared with the caller"
    again = pickle.loads(pickle.dumps(found))
    assert (again, again.to_dict()) == (found, found.to_dict())
    assert query.explain().to_dict() | {"lines": []} == found.to_dict() | {"lines": []}


def test_facts_of_what_nothing_bounds():
    facts = wm.sql(PAIR.removesuffix(" WINDOW = 1 SECOND"), streams()).explain().to_dict()
    assert [(w["least_us"], w["most_us"], w["written"]) for w in facts["windows"]] == [(None, None, False)]
    assert [s["kept_us"] for s in facts["state"]] == [None, None]
    assert facts["warnings"][0].startswith("no window bounds a, b")


def test_explain_warns_in_one_line_each():
    text = "SELECT DISTINCT a.s FROM s a, t b WHERE a.k % 2 + b.k > 5"
    warned = [line for line in wm.sql(text, **streams()).explain().splitlines() if line.startswith("warning")]
    assert [line.split(":")[0] for line in warned] == [
        "warning    no window bounds a, b",
        "warning    DISTINCT remembers every row that has left",
    ]
    alone = wm.sql("SELECT a.s FROM s a [ROWS 3], t b WHERE a.k < b.k", **streams()).explain()
    assert "a 3 rows" in alone


@pytest.mark.parametrize("option", [{"kernel": "magic"}, {"units": 0}, {"order": ["a"]}, {"batch_rows": 0}])
def test_a_wrong_option_is_an_error(option):
    with pytest.raises(wm.WatersmeetError):
        wm.local.run("SELECT a.s FROM s a, t b WHERE a.k = b.k WINDOW = 1 SECOND", tables(), **option)


def test_sql_is_the_function_although_a_package_has_its_name() -> None:
    import watersmeet.sql.fluent  # noqa: F401 - importing the package must not hide the function

    assert callable(wm.sql)
