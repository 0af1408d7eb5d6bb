"""Executors for units that come and go: `Scaling(executors=)` asks for as many as its units need.

    units 4 -> 8, four to an executor      Spark is asked for 2 executors in all
    units 8 -> 4                           one idle executor is let go, and Spark is asked for 1 in all

Spark has calls for it on a classic session only, and Python none of its own (`SparkContext.requestTotalExecutors`, `killExecutors`). Where dynamic allocation is on, it lets idle executors go by
itself and forbids others to; there Spark is only asked.

Invariant: nobody waits for executors, and none of them is needed: units run wherever there are cores. A request that fails is a warning, never the end of a query.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from watersmeet.errors import OptionError
from watersmeet.query.scaling import Scaling
from watersmeet.runtime.spark.executors import is_one_machine
from watersmeet.runtime.spark.versions import is_connect

_DRIVER = "driver"
DYNAMIC = "spark.dynamicAllocation.enabled"
Ask = Callable[[int], object]
"""Is called with how many executors there should be."""


@dataclass
class Executors:
    """Asks for executors when the number of units has changed."""

    ask: Ask
    units_each: int
    _asked: int = field(default=0, init=False)

    def follow(self, units: int) -> None:
        """There are so many units now."""
        wanted = max(1, math.ceil(units / self.units_each))
        if wanted == self._asked:
            return
        self._asked = wanted
        try:
            self.ask(wanted)
        except Exception as error:
            warnings.warn(
                f"Scaling(executors=): {wanted} executors were asked for, in vain: {type(error).__name__}: {error}; the query goes on with those that it has",
                UserWarning,
                stacklevel=2,
            )


def executors_of(scaling: Scaling | None, spark: Any) -> Executors | None:
    """Who asks for executors, if somebody is to; an error where nobody can be asked."""
    if scaling is None or scaling.executors is None:
        return None
    if callable(scaling.executors):
        return Executors(scaling.executors, scaling.units_per_executor)
    if is_connect(spark):
        raise OptionError(
            "Scaling(executors='spark') needs a classic session: Spark Connect has no call for it; give a function that asks your cluster manager, or turn spark.dynamicAllocation on"
        )
    if is_one_machine(spark):
        warnings.warn(
            "Scaling(executors='spark') has no effect here: a session of one machine has no executors",
            UserWarning,
            stacklevel=2,
        )
        return None
    return Executors(SparkExecutors(spark.sparkContext), scaling.units_per_executor)


@dataclass(frozen=True)
class SparkExecutors:
    """Asks Spark's scheduler, which asks its cluster manager."""

    context: Any

    def __call__(self, wanted: int) -> None:
        scheduler, jvm = self.context._jsc.sc(), self.context._jvm
        if self.context.getConf().get(DYNAMIC, "false").lower() != "true":
            self._let_go(scheduler, jvm, wanted)
        nowhere = getattr(jvm.scala.collection.immutable, "Map$").__getattr__("MODULE$").empty()
        if not scheduler.requestTotalExecutors(wanted, 0, nowhere):
            raise OptionError(f"the cluster manager of {self.context.master} does not hand out executors on request")

    def _let_go(self, scheduler: Any, jvm: Any, wanted: int) -> None:
        """Let idle executors go that are too many, the youngest first. It lowers what Spark is asked for, too, so it comes first."""
        found = scheduler.statusStore().executorList(True)
        living = [e for e in (found.apply(n) for n in range(found.size())) if e.id() != _DRIVER]
        idle = [e.id() for e in sorted(living, key=lambda e: int(e.id()), reverse=True) if not e.activeTasks()]
        surplus = idle[: max(len(living) - wanted, 0)]
        if surplus:
            names = jvm.java.util.ArrayList()
            for name in surplus:
                names.add(name)
            scheduler.killExecutors(jvm.org.apache.spark.api.python.PythonUtils.toSeq(names))
