"""Sites in process: the rounds of `units.programs.sites` over mail in memory, with the counts and the changes of plan.

Invariant: batch by batch the same as the rounds runtime: the same program, late rows, bounds of expiry and decisions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from watersmeet.plan.model import Plan
from watersmeet.plan.sites.online import Memory, advanced, decided
from watersmeet.units.join_unit import Inbox, StepReport
from watersmeet.units.program import Call, Mail
from watersmeet.units.programs.sites import SiteProgram
from watersmeet.units.segment_store import MemoryStore
from watersmeet.units.state import Manifest
from watersmeet.units.watermark import advance, watermarks

Letters = dict[int, dict[int, dict[str, list[pa.Table]]]]
"""By round, unit and kind."""


class SiteRounds:
    """The sites of one run."""

    def __init__(self, plan: Plan, manifests: Sequence[Manifest], stores: Sequence[MemoryStore]) -> None:
        self.plan, self.manifests, self.stores = plan, manifests, stores
        self.memory, self.batch, self.maxima = Memory(), 0, dict[str, int]()
        self.reports: dict[int, StepReport] = {}
        """Of the latest batch."""
        self.shipped: dict[str, list[int]] = {}
        """Shipments, rows and bytes by 'sender>receiver'."""
        self.changes: list[str] = []

    def step(self, inboxes: Sequence[Inbox]) -> Iterator[pa.Table]:
        """One batch: its results; then bounds, counts and the next batch's plan."""
        self.reports = {unit: StepReport() for unit in range(len(inboxes))}
        for stream, said in inboxes[0].punctuations.items():
            late = self.manifests[0].late
            late[stream] = late.get(stream, 0) + said.null_times
        program = SiteProgram(self.plan)
        letters: Letters = {0: {unit: dict(inbox.tables) for unit, inbox in enumerate(inboxes)}}
        while letters:
            number = min(letters)
            for unit, kinds in sorted(letters.pop(number).items()):
                call = Call(number, unit, kinds, self.manifests[unit], self.stores[unit], batch=self.batch)
                for item in program.step(call):
                    if isinstance(item, Mail):
                        into = letters.setdefault(number + 1 if item.round is None else item.round, {})
                        into.setdefault(item.to, {}).setdefault(item.kind, []).append(item.table)
                    else:
                        yield item
                self.reports[unit].include(call.report)
        self._settle(program, {s: p.max_ts for s, p in inboxes[0].punctuations.items()})

    def _settle(self, program: SiteProgram, seen: dict[str, int]) -> None:
        before, self.maxima = self.maxima, advance(self.maxima, seen)
        cuts = program.cuts(self.maxima)
        for manifest, store in zip(self.manifests, self.stores, strict=True):
            manifest.maxima = dict(self.maxima)
            for name, infos in manifest.segments.items():
                for info in infos:
                    if info.max_ts < cuts[name]:
                        store.remove(info)
                manifest.segments[name] = [i for i in infos if i.max_ts >= cuts[name]]
        measured: dict[str, Any] = {}
        for unit, report in self.reports.items():
            measured |= report.measured
            report.retained = {**dict.fromkeys(self.plan.aliases, 0), **self.manifests[unit].rows()}
            report.watermarks = watermarks(self.plan, self.maxima)
            for pair, amounts in report.sent.items():
                name = ">".join(self.plan.site_names[int(u)] for u in pair.split(">"))
                self.shipped[name] = [a + b for a, b in zip(self.shipped.get(name, (0, 0, 0)), amounts, strict=True)]
        self.memory.count(measured, advanced(self.plan, measured, before, self.maxima))
        following, said = decided(self.plan, self.memory)
        self.changes += said
        self.plan, self.batch = self.plan.at(following), self.batch + 1
