"""One site's part of a query on Spark: its own streams, a tick, and letters.

The streams that arrive elsewhere are in the query, and in no frame. A tick goes with the streams that arrive here: a batch comes every second at least, so that
letters are taken, and silence is told, while nothing else happens.

Invariant: the same query text and the same options give the same plan at every site; `Correspondence.check_others` refuses what differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import DataFrame

from watersmeet.dataflow.contract import Message
from watersmeet.errors import OptionError, UnsupportedError
from watersmeet.plan.explain.explanation import Detail, Explanation, explain
from watersmeet.plan.fingerprint import fingerprint
from watersmeet.plan.model import InputPlan, Plan
from watersmeet.runtime.rounds.checkpoint import LETTERS
from watersmeet.runtime.rounds.decide import Decider
from watersmeet.runtime.rounds.handle import Handle, folder_of, launch, outlet_of, reach_stores, trigger_of
from watersmeet.runtime.rounds.protocol import Protocol
from watersmeet.runtime.rounds.sinks import FileSink, check_names, columns_given, sink
from watersmeet.runtime.rounds.supersteps import Account, Supersteps
from watersmeet.runtime.sites.exchange import FolderExchange
from watersmeet.runtime.sites.letters import STATE, Correspondence
from watersmeet.runtime.spark.workers import probe_workers
from watersmeet.sites.dataflow import SiteFlows
from watersmeet.sites.letter import FORMAT
from watersmeet.sites.station import Station
from watersmeet.storage.manifest import BatchManifest, Intent

_HERE_ONLY = ("lateness", "max_ahead")
"""What a description says of streams that only their own site knows."""


@dataclass(frozen=True)
class SiteIntake:
    """What enters at one site of a plan."""

    plan: Plan
    station: Station
    inputs: tuple[InputPlan, ...] = field(init=False)
    by_alias: Mapping[str, InputPlan] = field(init=False)
    streams: Mapping[str, Any] = field(init=False)
    aliases: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        homes = [self.plan.inputs[n] for n in self.station.homes]
        inputs = tuple(replace(source, position=n) for n, source in enumerate(homes))
        streams = {name: spec for name, spec in self.plan.streams.items() if name in self.station.streams}
        derived = {
            "inputs": inputs,
            "by_alias": {i.alias: i for i in inputs},
            "streams": streams,
            "aliases": tuple(i.alias for i in inputs),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    @property
    def title(self) -> str:
        return f"{self.plan.title} at {self.station.name}"

    @property
    def units(self) -> int:
        return self.station.units

    def description(self) -> dict[str, Any]:
        own = self.plan.description()
        lateness = {name: own["lateness"][name] for name in self.streams}
        return {**own, "lateness": lateness, "at": self.station.name, "units": self.station.units}

    def fingerprint(self) -> str:
        return fingerprint(self.description())


class SiteDecider(Decider):
    """What batches of a site decide: which letters they take."""

    def __init__(self, plan: Plan, letters: Correspondence) -> None:
        super().__init__(None)
        self.query, self.letters, self.taken = plan, letters, (letters,)
        self.carried: list[str] = []

    def read_sites(self, intent: Intent) -> dict[str, Any]:
        found: dict[str, Any] = intent.sites[STATE]
        return found

    def messages(self, before: BatchManifest, intent: Intent) -> list[Message]:
        return self.letters.messages(before, intent)

    def after_commit(self, after: BatchManifest) -> None:
        if after.batch >= 0:
            self.letters.after_commit(after)

    def describe(self, after: BatchManifest, account: Account) -> dict[str, Any]:
        return {"shipping": str(self.query.sites and self.query.sites.linear), "shipped": self.letters.shipped}

    def explain(self, runtime: str, detail: Detail, manifest: BatchManifest | None) -> Explanation:
        return explain(self.query, runtime, detail, shipping_now=self.carried)


def start_at(
    plan: Plan,
    frames: Mapping[str, DataFrame],
    *,
    at: str,
    exchange: Any,
    sink_: Any,
    checkpoint: Any,
    trigger: Any = None,
    name: str | None = None,
    partition_by: Any = None,
) -> Handle:
    """Start one site's part of a query; `frames` are those of the streams that arrive here, by name."""
    if plan.parts or plan.join.lookups:
        raise UnsupportedError(
            "outer, semi, anti and as-of joins, and joins with tables, do not run across sites yet; join tables at their site before, and run the others where all results are"
        )
    if plan.finish is not None:
        raise UnsupportedError(
            "DISTINCT and GROUP BY need all results at one place, and sites write what they find; leave them to a query over the results"
        )
    if "availableNow" in trigger_of(trigger):
        raise OptionError(
            "trigger='availableNow' ends when nothing more comes, and a site never knows that of the others; give a duration, such as '1 second'"
        )
    folder, to = folder_of(checkpoint), sink(sink_, partition_by=columns_given(partition_by))
    check_names(to, [output.name for output in plan.join.results])
    spark = next(iter(frames.values())).sparkSession
    probe_workers(spark)
    reach_stores(spark, folder, to)
    folder.prepare(LETTERS)
    station = Station(plan, plan.site_names.index(at), max(1, plan.units_wanted))
    intake = SiteIntake(plan, station)
    shared = {k: v for k, v in plan.description().items() if k not in _HERE_ONLY}
    who = {"fingerprint": fingerprint(shared), "format": FORMAT, "query": plan.title}
    letters = Correspondence(station, FolderExchange(exchange), folder, who)
    letters.begin()
    steps = Supersteps(
        SiteFlows(station, intake),
        outlet_of(plan, {}),
        frames,
        folder,
        folder_of_results=to if isinstance(to, FileSink) else None,
        ticks=True,
    )
    decider = SiteDecider(plan, letters)
    return launch(Protocol(intake, steps, folder, to, decider), checkpoint, trigger, name)
