"""All sites of a query in one process, each with batches of its own, and the letters between them.

    paris   batch 0   batch 1   batch 2 ...       a batch takes the letters that have come, and posts its own when it is over
    tokyo        batch 0      batch 1 ...

Invariant: a site knows of others what letters have brought it, and nothing else. Their items stay tables; what they would take on a line is weighed (`sites.scale`). In which order sites run their batches, and how long letters
are on their way, changes when results come, not which.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from watersmeet.dataflow.clock import Clock, Seen, watermarks
from watersmeet.dataflow.report import Report
from watersmeet.kernels.instants import LAST
from watersmeet.plan.model import Plan
from watersmeet.runtime.units import InProcess, enter
from watersmeet.runtime.wires import set_aside
from watersmeet.sites.dataflow import SiteFlows
from watersmeet.sites.letter import Letter
from watersmeet.sites.one_way.unit import Outbox
from watersmeet.sites.plan_change.explain import explain_choice
from watersmeet.sites.scale import Scale
from watersmeet.sites.site_state import SiteState
from watersmeet.sites.station import Station
from watersmeet.storage.manifest import Identity

Pair = tuple[str, str]
"""The sending site and the receiving one."""
_STATE, _LETTER = "state.json", "letter"


class AtSite:
    """One site: its units, and what it knows between batches."""

    def __init__(self, plan: Plan, site: int, units: int = 1, *, measures_first: bool = False) -> None:
        self.station = Station(plan, site, units, measures_first=measures_first)
        self.flows = SiteFlows(self.station, plan)
        self.units = InProcess(Identity.of(plan))
        self.state = SiteState()
        self.streams = {name: spec for name, spec in plan.streams.items() if name in self.station.streams}
        self.aliases = [plan.aliases[n] for n in self.station.homes]
        """Of the streams that arrive here."""

    def play(
        self,
        wires: Mapping[str, pa.Table],
        letters: Sequence[Letter],
        *,
        ended: bool = False,
        reached: Mapping[str, int] | None = None,
    ) -> tuple[list[pa.Table], list[Letter]]:
        """A batch of wire rows by alias: its results, and what other sites are sent. `ended`: no more will come; streams have `reached` these times besides."""
        state, outbox, batch = self.station.take(self.state, letters), Outbox(), self.units.batch
        inbox, flow = self.station.deal(state, letters), self.flows.at(state, outbox)
        seen, messages = enter(flow, {a: w for a, w in wires.items() if a in flow.entries}, batch)
        seen.include(Seen({s: at for s, at in (reached or {}).items() if s in self.streams}))
        out = self.units.play(flow, [*messages, *inbox], seen, ended=ended)
        marks = dict.fromkeys(self.streams, LAST) if ended else watermarks(self.streams, self.units.maxima)
        measures = [report.measured for report in self.units.reports.values()]
        state, spans = self.station.settle(state, marks, measures)
        self.state, sent = self.station.post(state, spans, batch, outbox)
        return out, sent

    def save(self) -> dict[str, bytes]:
        return {**self.units.save(), _STATE: json.dumps(self.state.to_json()).encode()}

    def resume(self, saved: Mapping[str, bytes]) -> None:
        self.state = SiteState.of(json.loads(saved[_STATE]))
        self.units = InProcess.load({n: c for n, c in saved.items() if n != _STATE}, self.units.identity)


class AcrossSites:
    """The sites of a plan, and what is on its way between them."""

    def __init__(self, plan: Plan, units: int = 1, *, exact: bool = False, measures_first: bool = False) -> None:
        self.plan, self.exact = plan, exact
        self.sites = {
            name: AtSite(plan, n, units, measures_first=measures_first) for n, name in enumerate(plan.site_names)
        }
        self.lines: dict[Pair, list[Letter]] = {}
        """By (sender, receiver), oldest first."""
        self.scales: dict[Pair, Scale] = {}
        self.shipped: dict[Pair, tuple[int, int, int]] = {}
        """Letters, rows and bytes by (sender, receiver), so far."""
        self.awaited: set[str] = set()
        """The sites to which something is on its way besides what is measured."""
        self._said: dict[Pair, dict[str, Any]] = {}

    def push(
        self,
        wires: Mapping[str, pa.Table],
        *,
        ended: bool = False,
        reached: Mapping[str, int] | None = None,
        settles: bool = False,
    ) -> list[pa.Table]:
        """A batch of every site, and what is found; if it `settles`, more batches until nothing is on its way that results may follow from."""
        out = [t for name in self.sites for t in self.play(name, wires, ended=ended, reached=reached)]
        while settles and self.awaited:
            for name in [name for name in self.sites if name in self.awaited]:
                out += self.play(name, {}, ended=ended)
        return out

    def play(
        self,
        name: str,
        wires: Mapping[str, pa.Table],
        *,
        ended: bool = False,
        reached: Mapping[str, int] | None = None,
        most: int | None = None,
    ) -> list[pa.Table]:
        """A batch of one site, which takes the letters that have come for it, of every sender the first so many."""
        letters: list[Letter] = []
        self.awaited.discard(name)
        for (_, receiver), waiting in self.lines.items():
            if receiver == name:
                taken = waiting[:most]
                del waiting[: len(taken)]
                letters += taken
        found, sent = self.sites[name].play(wires, letters, ended=ended, reached=reached)
        for letter in sent:
            self._ship(self.sites[name], letter)
        if any(begin < end for begin, end in self.sites[name].state.fates.values()):
            self.awaited.add(name)  # who has no partner leaves in the site's next batch
        return found

    def _ship(self, site: AtSite, letter: Letter) -> None:
        pair = letter.sender, letter.to
        weight = self.scales.setdefault(pair, Scale(exact=self.exact)).weigh(letter)
        site.station.count(site.state, letter, weight.kinds, weight.total)
        matters = bool(letter.items) or letter.says != self._said.get(pair)
        self._said[pair] = letter.says
        self.carry(letter, weight.total, matters=matters)
        letters, rows, size = self.shipped.get(pair, (0, 0, 0))
        self.shipped[pair] = letters + 1, rows + letter.rows, size + weight.total

    def carry(self, letter: Letter, size: int, *, matters: bool) -> None:
        """A letter of so many bytes, from one site to another; whether results may follow from it."""
        self.lines.setdefault((letter.sender, letter.to), []).append(letter)
        if matters:
            self.awaited.add(letter.to)

    def set_aside(self, wires: Mapping[str, pa.Table], batch: int) -> tuple[dict[str, pa.Table], pa.Table]:
        """Wire rows by alias without the whole rows, and what of them is dropped, by the clocks of their sites."""
        bare, lost = dict[str, pa.Table](), list[pa.Table]()
        for site in self.sites.values():
            own = {alias: wires[alias] for alias in site.aliases if alias in wires}
            kept, dropped = set_aside(self.plan, Clock(site.streams, site.units.maxima), own, batch)
            bare |= kept
            lost.append(dropped)
        return bare, pa.concat_tables(lost)

    @property
    def changes(self) -> list[str]:
        """The last changes of the plan, in words."""
        site = next(iter(self.sites.values())).station.decider
        return list(self.sites[site].state.choice.changes)

    def explain(self) -> list[str]:
        """The present plan, as the deciding site knows it."""
        site = self.sites[next(iter(self.sites.values())).station.decider]
        return explain_choice(site.station.look(site.state), site.station.decider)

    @property
    def is_quiet(self) -> bool:
        """Whether no letter is on its way, and nobody leaves in the next batch because of the last one."""
        waits = [fate for site in self.sites.values() for fate in site.state.fates.values()]
        return not any(self.lines.values()) and all(begin == end for begin, end in waits)

    @property
    def finishing(self) -> InProcess:
        """The units of the site where all results come together."""
        assert self.plan.sites is not None
        return self.sites[str(self.plan.sites.lines.results_at)].units

    @property
    def late(self) -> dict[str, int]:
        """Late rows by stream."""
        out: dict[str, int] = {}
        for site in self.sites.values():
            for stream, rows in site.units.late.items():
                out[stream] = out.get(stream, 0) + rows
        return out

    @property
    def watermarks(self) -> dict[str, int]:
        """By stream, each as its own site has it."""
        return {
            stream: mark
            for site in self.sites.values()
            for stream, mark in watermarks(site.streams, site.units.maxima).items()
        }

    @property
    def stored(self) -> dict[str, int]:
        """The tuples in windows, by alias."""
        out = dict.fromkeys(self.plan.aliases, 0)
        for site in self.sites.values():
            for state in site.units.states.values():
                rows = state.rows()
                for alias in site.aliases:
                    out[alias] += rows.get(alias, 0)
        return out

    @property
    def reports(self) -> Iterator[Report]:
        """Of the latest batch of every site."""
        for site in self.sites.values():
            yield from site.units.reports.values()

    def save(self) -> dict[str, bytes]:
        """The state of all sites between batches, and the letters on their way, as contents of files."""
        out = {f"{n}/{name}": c for n, site in enumerate(self.sites.values()) for name, c in site.save().items()}
        names = list(self.sites)
        for (sender, receiver), letters in self.lines.items():
            between = f"{names.index(sender)}-{names.index(receiver)}"
            out |= {f"{between}/{n}.{_LETTER}": letter.to_bytes() for n, letter in enumerate(letters)}
        return out

    def resume(self, saved: Mapping[str, bytes]) -> None:
        """Go on from a saved state; an error if it is of another query."""
        names, folders = list(self.sites), dict[str, dict[str, bytes]]()
        for path, content in saved.items():
            folder, name = path.split("/")
            folders.setdefault(folder, {})[name] = content
        for folder, files in folders.items():
            if "-" in folder:
                sender, receiver = (names[int(n)] for n in folder.split("-"))
                blobs = [files[f"{n}.{_LETTER}"] for n in range(len(files))]
                self.lines[sender, receiver] = [Letter.from_bytes(b, f"a letter from {sender}") for b in blobs]
            else:
                self.sites[names[int(folder)]].resume(files)
