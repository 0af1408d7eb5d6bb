"""`watersmeet/__init__.py` is the whole public API, and it is as DESIGN.md section 3 writes it."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet import errors


def parameters(function: object) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(function).parameters)


def test_exactly_these_names_are_public():
    assert set(wm.__all__) == {
        "Line",
        "Scaling",
        "Sites",
        "Stream",
        "sql",
        "join",
        "local",
        "subscriptions",
        "WatersmeetError",
    }
    assert len(wm.__all__) == len(set(wm.__all__))
    assert all(hasattr(wm, name) for name in wm.__all__)


def test_names_are_loaded_when_they_are_used_and_stay_what_they_are():
    code = """if True:
        import sys
        import watersmeet.runtime.rounds.worker, watersmeet.runtime.spark_stream
        assert "sqlglot" not in sys.modules, "every Python worker of Spark would load it"
        import watersmeet as wm
        from watersmeet.sql.parse import parse
        assert callable(wm.sql) and wm.local.run and set(wm.__all__) <= set(dir(wm))
    """
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = wm.nonsense


def test_stream():
    found = parameters(wm.Stream)
    assert list(found) == ["source", "time", "lateness", "idle", "site"]
    assert all(found[name].kind is inspect.Parameter.KEYWORD_ONLY for name in ("time", "lateness", "idle", "site"))
    assert found["time"].default is inspect.Parameter.empty
    assert found["idle"].default is None


def test_sql_and_join_take_streams_by_name():
    assert any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters(wm.sql).values())
    assert any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters(wm.join).values())


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


def test_the_fluent_form_is_the_same_query():
    streams = {name: wm.Stream(table, time="ts") for name, table in tables().items()}
    query = wm.join(a=streams["s"], b=streams["t"]).on("a.k = b.k").window("a", "b", "10s")
    assert "10 s" in query.explain()


@pytest.mark.parametrize("option", [{"kernel": "magic"}, {"units": 0}, {"order": ["a"]}, {"batch_rows": 0}])
def test_a_wrong_option_is_an_error(option):
    with pytest.raises(wm.WatersmeetError):
        wm.local.run("SELECT a.s FROM s a, t b WHERE a.k = b.k WINDOW = 1 SECOND", tables(), **option)


def test_sql_is_the_function_although_a_package_has_its_name() -> None:
    import watersmeet.sql.fluent  # noqa: F401 - importing the package must not hide the function

    assert callable(wm.sql)
