"""All sites of a query in one process, each with batches of its own, and the letters between them.

    paris   batch 0   batch 1   batch 2 ...       a batch takes the letters that have come, and posts its own when it is over
    tokyo        batch 0      batch 1 ...

Invariant: a site knows of others what letters have brought it, and nothing else: they travel as bytes. In which order sites run their batches, and how long letters
are on their way, changes when results come, not which.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa

from watersmeet.dataflow.clock import watermarks
from watersmeet.kernels.instants import LAST
from watersmeet.plan.model import Plan
from watersmeet.runtime.in_process import InProcess, enter
from watersmeet.sites.dataflow import SiteFlows
from watersmeet.sites.kept import name_out
from watersmeet.sites.letter import Letter
from watersmeet.sites.station import SiteState, Station
from watersmeet.storage.manifest import Identity


class AtSite:
    """One site: its units, and what it knows between batches."""

    def __init__(self, plan: Plan, site: int, units: int = 1) -> None:
        self.station = Station(plan, site, units)
        self.flows = SiteFlows(self.station, plan)
        self.units = InProcess(Identity.of(plan))
        self.state = SiteState()

    def play(
        self, wires: Mapping[str, pa.Table], letters: Collection[Letter], *, ended: bool = False
    ) -> tuple[list[pa.Table], list[Letter]]:
        """A batch of wire rows by alias: its results, and what other sites are sent. `ended`: no more will come."""
        state, inbox = self.station.take(self.state, letters)
        flow, batch = self.flows.under({"sites": state.to_json()}), self.units.batch
        seen, messages = enter(flow, {a: w for a, w in wires.items() if a in flow.entries}, batch)
        out = self.units.play(flow, [*messages, *inbox], seen, ended=ended)
        marks = dict.fromkeys(flow.streams, LAST) if ended else watermarks(flow.streams, self.units.maxima)
        state, spans = self.station.settle(state, marks)
        self.state, sent = self.station.post(state, spans, batch, self._outs(batch))
        return out, sent

    def _outs(self, batch: int) -> dict[int, list[pa.Table]]:
        """By site what the units have left for it in a batch."""
        out: dict[int, list[pa.Table]] = {}
        for site in self.station.others:
            infos = [i for m in self.units.states.values() for i in m.segments.get(name_out(site), [])]
            out[site] = [self.units.store.read(i).table for i in infos if i.min_ts == batch]
        return out

    @property
    def late(self) -> dict[str, int]:
        return self.units.late


class AcrossSites:
    """The sites of a plan, and what is on its way between them."""

    def __init__(self, plan: Plan, units: int = 1) -> None:
        self.sites = {name: AtSite(plan, n, units) for n, name in enumerate(plan.site_names)}
        self.lines: dict[tuple[str, str], list[bytes]] = {}
        """By (sender, receiver), oldest first."""
        self.shipped: dict[tuple[str, str], tuple[int, int, int]] = {}
        """Letters, rows and bytes by (sender, receiver), so far."""

    def play(
        self, name: str, wires: Mapping[str, pa.Table], *, ended: bool = False, most: int | None = None
    ) -> list[pa.Table]:
        """A batch of one site, which takes the letters that have come for it, of every sender the first so many."""
        letters = []
        for (sender, receiver), waiting in self.lines.items():
            if receiver == name:
                taken = waiting[:most]
                del waiting[: len(taken)]
                letters += [Letter.from_bytes(blob, f"a letter from {sender}") for blob in taken]
        found, sent = self.sites[name].play(wires, letters, ended=ended)
        for letter in sent:
            self._ship(letter)
        return found

    def _ship(self, letter: Letter) -> None:
        pair, blob = (letter.sender, letter.to), letter.to_bytes()
        self.lines.setdefault(pair, []).append(blob)
        letters, rows, size = self.shipped.get(pair, (0, 0, 0))
        more = sum(table.num_rows for table in letter.items.values())
        self.shipped[pair] = letters + 1, rows + more, size + len(blob)

    @property
    def is_quiet(self) -> bool:
        """Whether no letter is on its way."""
        return not any(self.lines.values())

    @property
    def late(self) -> dict[str, int]:
        """Late rows by stream."""
        out: dict[str, int] = {}
        for site in self.sites.values():
            for stream, rows in site.late.items():
                out[stream] = out.get(stream, 0) + rows
        return out
