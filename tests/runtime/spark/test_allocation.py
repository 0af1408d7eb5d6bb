"""Executors are asked for as units come and go; who cannot be asked is said."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from watersmeet.errors import OptionError
from watersmeet.query.scaling import Scaling
from watersmeet.runtime.spark import allocation
from watersmeet.runtime.spark.allocation import Executors, SparkExecutors, executors_of


def test_it_asks_when_another_number_is_needed() -> None:
    asked: list[int] = []
    executors = Executors(asked.append, units_each=4)
    for units in (4, 5, 8, 9, 1):
        executors.follow(units)
    assert asked == [1, 2, 3, 1]


def test_a_request_that_fails_is_a_warning() -> None:
    def refuse(wanted: int) -> None:
        raise RuntimeError("no room")

    with pytest.warns(UserWarning, match="2 executors were asked for, in vain: RuntimeError: no room"):
        Executors(refuse, units_each=1).follow(2)


class Scheduler:
    """Stands in for SparkContext of the JVM: executors by id, some of which are busy."""

    def __init__(self, living: dict[str, int], *, grants: bool = True) -> None:
        self.living, self.grants, self.calls = living, grants, list[tuple[str, Any]]()

    def statusStore(self) -> Any:
        made = [SimpleNamespace(id=lambda i=i: i, activeTasks=lambda n=n: n) for i, n in self.living.items()]
        found = SimpleNamespace(size=lambda: len(made), apply=lambda n: made[n])
        return SimpleNamespace(executorList=lambda active: found)

    def killExecutors(self, ids: list[str]) -> bool:
        self.calls.append(("kill", list(ids)))
        return True

    def requestTotalExecutors(self, wanted: int, local: int, hosts: Any) -> bool:
        self.calls.append(("request", wanted))
        return self.grants


def context_of(scheduler: Scheduler, dynamic: str = "false") -> Any:
    class Ids(list[str]):
        add = list.append

    python = SimpleNamespace(PythonUtils=SimpleNamespace(toSeq=lambda ids: ids))
    jvm = SimpleNamespace(
        scala=SimpleNamespace(collection=SimpleNamespace(immutable=SimpleNamespace(**{"Map$": NoMap()}))),
        java=SimpleNamespace(util=SimpleNamespace(ArrayList=Ids)),
        org=SimpleNamespace(apache=SimpleNamespace(spark=SimpleNamespace(api=SimpleNamespace(python=python)))),
    )
    conf = SimpleNamespace(get=lambda name, default: dynamic if name == allocation.DYNAMIC else default)
    jsc = SimpleNamespace(sc=lambda: scheduler)
    return SimpleNamespace(_jsc=jsc, _jvm=jvm, master="spark://hub:7077", getConf=lambda: conf)


class NoMap:
    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(empty=dict)


def test_spark_is_asked_for_all_that_there_should_be() -> None:
    scheduler = Scheduler({"driver": 0, "0": 0})
    SparkExecutors(context_of(scheduler))(3)
    assert scheduler.calls == [("request", 3)]


def test_idle_executors_are_let_go_before_spark_is_asked_for_fewer() -> None:
    scheduler = Scheduler({"driver": 0, "0": 0, "2": 0, "10": 0, "3": 1})
    SparkExecutors(context_of(scheduler))(2)
    assert scheduler.calls == [("kill", ["10", "2"]), ("request", 2)], "the youngest that are idle"


def test_dynamic_allocation_lets_go_by_itself() -> None:
    scheduler = Scheduler({"driver": 0, "0": 0, "1": 0})
    SparkExecutors(context_of(scheduler, "true"))(1)
    assert scheduler.calls == [("request", 1)]


def test_a_manager_that_hands_nothing_out_is_named() -> None:
    with pytest.raises(OptionError, match="spark://hub:7077 does not hand out executors"):
        SparkExecutors(context_of(Scheduler({}, grants=False)))(1)


def test_who_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    local = SimpleNamespace(conf=SimpleNamespace(get=lambda name, default=None: "local[2]"))
    assert executors_of(Scaling("1 MB"), local) is None
    with pytest.warns(UserWarning, match="one machine has no executors"):
        assert executors_of(Scaling("1 MB", executors="spark"), local) is None
    found = executors_of(Scaling("1 MB", executors=print, units_per_executor=3), local)
    assert found is not None
    assert (found.ask, found.units_each) == (print, 3)
    monkeypatch.setattr(allocation, "is_connect", lambda spark: True)
    with pytest.raises(OptionError, match="needs a classic session"):
        executors_of(Scaling("1 MB", executors="spark"), local)
