"""One site's part of a query on Spark: its own streams, a tick, and letters.

The streams that arrive elsewhere are in the query, and in no frame. A tick goes with the streams that arrive here: a batch comes every second at least, so that
letters are taken, and silence is told, while nothing else happens.

Invariant: the same query text and the same options give the same plan at every site; `Correspondence.check_others` refuses what differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import DataFrame

from watersmeet.dataflow.contract import Message
from watersmeet.errors import OptionError, UnsupportedError
from watersmeet.plan.explain.explanation import Detail, Explanation, explain
from watersmeet.plan.fingerprint import fingerprint, parts_of
from watersmeet.plan.model import InputPlan, Plan
from watersmeet.plan.rules.tree import is_of_two_streams
from watersmeet.runtime.given import trigger_of
from watersmeet.runtime.kafka.address import NAME as KAFKA
from watersmeet.runtime.rounds.batch import Account
from watersmeet.runtime.rounds.checkpoint import LETTERS
from watersmeet.runtime.rounds.decide import Decider
from watersmeet.runtime.rounds.follow import check_sinks
from watersmeet.runtime.rounds.handle import Handle, check_apart, folder_of, launch, reach_stores
from watersmeet.runtime.rounds.protocol import Protocol
from watersmeet.runtime.rounds.results.outlet import outlet_of
from watersmeet.runtime.rounds.sinks import FileSink, NoopSink, check_names, columns_given, sink
from watersmeet.runtime.rounds.supersteps import Supersteps
from watersmeet.runtime.sites.exchange import Exchange
from watersmeet.runtime.sites.folder import FolderExchange
from watersmeet.runtime.sites.letters import EXCHANGE_REMEDY, PARTS, Correspondence
from watersmeet.runtime.sites.mailbox import STATE
from watersmeet.runtime.sites.topics import TopicExchange
from watersmeet.runtime.spark.stores import lend_settings
from watersmeet.runtime.spark.workers import probe_workers
from watersmeet.sites.dataflow import SiteFlows
from watersmeet.sites.letter import FORMAT
from watersmeet.sites.plan_change.choice import Outlook
from watersmeet.sites.plan_change.explain import explain_choice
from watersmeet.sites.site_state import SiteState
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
    def sets_aside(self) -> bool:
        """Sites set nothing aside, see `plan.rules.set_aside`."""
        return False

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
        return self.letters.messages(intent)

    def after_commit(self, after: BatchManifest) -> None:
        if after.batch >= 0:
            self.letters.after_commit(after)

    def describe(self, after: BatchManifest, account: Account) -> dict[str, Any]:
        now = self._look(after).plan.sites
        letters = self.letters
        return {"shipping": str(now and now.plan), "shipped": letters.shipped, "expected": letters.expected}

    def _look(self, manifest: BatchManifest) -> Outlook:
        return self.letters.station.look(SiteState.of(manifest.sites.get(STATE, {})))

    def explain(self, runtime: str, detail: Detail, manifest: BatchManifest | None) -> Explanation:
        if manifest is None:
            return explain(self.query, runtime, detail, shipping_now=self.carried)
        now = explain_choice(self._look(manifest), self.letters.station.decider)
        return explain(self.query, runtime, detail, shipping_now=self.carried, sites_now=now)


def open_exchange(given: Any, sites: Sequence[str], at: str) -> Exchange:
    """The carrier that an address names; raises if it cannot be reached."""
    if not (isinstance(given, str) and given.startswith(f"{KAFKA}:")):
        return FolderExchange(given)
    try:
        return TopicExchange(given, sites, at)
    except OSError as error:
        raise OptionError(f"exchange={given!r} cannot be used ({error}); {EXCHANGE_REMEDY}") from error


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
    late: Any = None,
) -> Handle:
    """Start one site's part of a query; `frames` are those of the streams that arrive here, by name, and `late` takes what is dropped of them."""
    check_query(plan, at)
    assert plan.sites is not None
    if "availableNow" in trigger_of(trigger):
        raise OptionError(
            "trigger='availableNow' ends when nothing more comes, and a site never knows that of the others; give a duration, such as '1 second'"
        )
    folder, to = folder_of(checkpoint), sink(sink_, partition_by=columns_given(partition_by))
    lost = None if late is None else sink(late, "late")
    check_apart(to, lost)
    check_names(to, [output.name for output in plan.join.results])
    spark = next(iter(frames.values())).sparkSession
    check_sinks(spark, to, lost)
    probe_workers(spark)
    reach_stores(spark, folder, to, lost)
    folder.prepare(LETTERS)
    station = Station(plan, plan.site_names.index(at), max(1, plan.units_wanted), measures_first=True)
    intake = SiteIntake(plan, station)
    lend_settings(spark, [exchange] if isinstance(exchange, str) else [])
    patience_s = plan.sites.lines.patience_us / 1e6
    letters = Correspondence(
        station, open_exchange(exchange, plan.site_names, at), folder, introduce(station), patience_s=patience_s
    )
    letters.begin()
    steps = Supersteps(
        SiteFlows(station, intake),
        outlet_of(plan, {}),
        frames,
        folder,
        late=lost is not None,
        keeps_nothing=isinstance(to, NoopSink),
        folder_of_results=to if isinstance(to, FileSink) else None,
        folder_of_late=lost if isinstance(lost, FileSink) else None,
        ticks=True,
    )
    decider = SiteDecider(plan, letters)
    return launch(Protocol(intake, steps, folder, to, decider, late=lost), checkpoint, trigger, name)


def introduce(station: Station) -> dict[str, Any]:
    """What a site says of itself: all that must be the same at all sites, and the parts of it by the names that users know, so that a difference can be named."""
    plan, placed = station.plan, station.plan.sites
    assert placed is not None
    shared = {k: v for k, v in plan.description().items() if k not in _HERE_ONLY}
    lines = placed.lines
    shared["sites"] = [str(placed.plan), str(placed.search), station.decider, lines.patience_us, lines.results_at]
    parts = {"sites=": [shared["sites"], shared["routing"]], **shared}
    named = parts_of({k: v for k, v in parts.items() if k not in ("sites", "routing")})
    return {"fingerprint": fingerprint(shared), "format": FORMAT, "query": plan.title, PARTS: named}


def check_query(plan: Plan, at: str) -> None:
    """Refuse what sites cannot do."""
    if plan.parts and not (is_of_two_streams(plan) and plan.finish is None):
        kinds: list[str] = [part.node.kind for part in plan.parts]
        raise UnsupportedError(
            f"{kinds[0].upper()} JOIN of {' and '.join(plan.parts[0].node.aliases)}: sites do LEFT, FULL, SEMI and ANTI joins of two streams, without DISTINCT and GROUP BY; "
            f"bring these streams to one site whole, and join them there with start() and no at="
        )
    if plan.join.tables:
        table = next(iter(plan.join.tables))
        raise UnsupportedError(
            f"table {table}: sites join streams; join the table with its stream at the stream's own site, before it becomes a wm.Stream: wm.Stream(orders_df.join(table_df, ...), time=..., site={at!r})"
        )
