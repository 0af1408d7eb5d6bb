"""The letters of a site in the batches of its Spark application: which ones a batch takes, and what it sends when it is committed.

    1  list the exchange; copy what the batch takes to the checkpoint            letters/tokyo-17
    2  intent n: the letters that it takes, and the site's state with them       a replay takes the same
    3  the rounds; then this site's own letters, as files of the checkpoint      letters/to-tokyo-9
    4  manifest n: the site's state, with the numbers of letters
    5  put letters into the exchange, and delete from it those that have been taken

Whatever dies between 4 and 5 is made good by the next batch, or by the next run: a letter that is there already stays. So is a line that is cut, or an exchange that does not answer: the
site goes on without it, with a warning, and its letters wait in the checkpoint.

A site that has nothing to say says so now and then: it is not taken for dead, and letters that it has taken can go.

Invariant: a letter is taken in exactly one committed batch, and sent only if the batch that made it is committed. Nobody waits for another site inside a batch.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from watersmeet.dataflow.clock import watermarks
from watersmeet.dataflow.contract import Message
from watersmeet.errors import CheckpointError, OptionError, StreamError
from watersmeet.plan.fingerprint import find_differences
from watersmeet.runtime.rounds.batch import Account
from watersmeet.runtime.rounds.checkpoint import LETTERS, MANIFESTS, StateFolder
from watersmeet.runtime.rounds.files import FileStore
from watersmeet.runtime.sites.exchange import Exchange
from watersmeet.runtime.sites.mailbox import (
    RUN,
    RUNS,
    STATE,
    TAKEN,
    list_waiting,
    read_run,
    read_sent,
    read_taken,
    write_run,
)
from watersmeet.sites.letter import Letter
from watersmeet.sites.one_way.kept import name_out
from watersmeet.sites.one_way.unit import read_out
from watersmeet.sites.site_state import SiteState
from watersmeet.sites.station import Station
from watersmeet.storage.manifest import BatchManifest, Intent

logger = logging.getLogger(__name__)
BATCH_BYTES = 256 * 2**20
"""A batch takes letters of about so many bytes; the others wait."""
BATCH_S = 10.0
"""A batch fetches letters for about so long: what a slow line has not brought by then waits, too."""
PARTS = "parts"
"""The key of the parts of a query in what sites say of themselves."""
GREET_S = 10.0
"""So often it is looked who the others are."""
EXCHANGE_REMEDY = "see that this site reaches the exchange, and that the exchange runs"


@dataclass
class Correspondence:
    """The letters of one site, as a decision of its batches."""

    station: Station
    exchange: Exchange
    folder: StateFolder
    who: dict[str, Any]
    """What this site says of itself."""
    name: str = "sites"
    quiet: dict[str, float] = field(default_factory=dict)
    """By site since when nothing has come from it, by this process's clock."""
    shipped: list[list[Any]] = field(default_factory=list)
    """Sender, receiver, letters, rows and bytes of the latest batch."""
    expected: list[list[Any]] = field(default_factory=list)
    """Sender, receiver and bytes that were expected of the latest batch."""
    patience_s: float = 300.0
    """A site that has been silent for so long is warned of, once. All sites have the same: a site that has nothing to say is heard of four times as often."""
    posted: dict[str, int] = field(default_factory=dict)
    """By site up to which letter all are in the exchange; a site is missing as long as this process has not looked."""
    spoken: dict[str, float] = field(default_factory=dict)
    """By site when the last letter was written to it, by this process's clock."""
    is_reached: bool = True
    """Whether the exchange answered when it was last asked."""
    timed: list[tuple[str, str, int, float]] = field(default_factory=list)
    """Sender, receiver, bytes and seconds of letters that were put or fetched since the last batch began."""
    greeted: float = float("-inf")
    """When it was last looked who the others are."""

    def begin(self) -> None:
        """Say who this site is; refuse to begin anew where others go on, and an exchange that does not answer."""
        try:
            self._begin()
        except OSError as error:
            raise OptionError(
                f"exchange={self.exchange.address!r} cannot be used ({error}); {EXCHANGE_REMEDY}"
            ) from error

    def _begin(self) -> None:
        me, names = self.station.name, self.folder.names(LETTERS)
        has_run = RUN in names or bool(self.folder.numbers(MANIFESTS))
        run = read_run(self.folder) if has_run else uuid.uuid4().hex
        before = self.exchange.greetings()
        if before.get(me, {}).get(RUN, run) != run and len(before) > 1:
            raise StreamError(
                f"site {me} has run with the exchange {self.exchange.address} before, from another checkpoint, and other sites go on from there: start it with that checkpoint (if this is it, restore {self.folder.path(LETTERS, RUN)}), or begin anew at all sites, with a new exchange and new checkpoints"
            )
        write_run(self.folder, run)
        self.who[RUN] = run
        self.exchange.greet(me, self.who)  # the others refuse it, too, if it is not what they are
        self.check_others()

    @contextmanager
    def _at_exchange(self) -> Iterator[None]:
        """Do something with the exchange; one that does not answer is warned of once, and asked again in the next batch."""
        try:
            yield
        except OSError as error:
            if self.is_reached:
                logger.warning(
                    "site %s does not reach its exchange %s (%s): it goes on without letters, which wait in its checkpoint; %s",
                    self.station.name,
                    self.exchange.address,
                    error,
                    EXCHANGE_REMEDY,
                )
            self.is_reached = False
            return
        if not self.is_reached:
            logger.warning("site %s reaches its exchange %s again", self.station.name, self.exchange.address)
        self.is_reached = True

    # ------------------------------------------------------------ before a batch

    def next(self, before: BatchManifest) -> dict[str, Any]:
        """The letters that a batch takes, and the state with them."""
        state, runs = SiteState.of(before.sites.get(STATE, {})), dict(before.sites.get(RUNS, {}))
        taken: list[tuple[str, int]] = []
        with self._at_exchange():
            if time.monotonic() - self.greeted >= GREET_S:
                self.check_others()
            for one in self._fetch(state):
                taken.append(one)  # what was fetched before a line was cut is taken
        letters = [self._read(sender, number) for sender, number in taken]
        for letter in letters:
            if runs.setdefault(letter.sender, letter.run) != letter.run:
                raise StreamError(
                    f"site {letter.sender} has begun anew, with an empty checkpoint, while {self.station.name} goes on: restore its checkpoint, or begin anew at all sites, with a new exchange and new checkpoints"
                )
        self._note_silence({letter.sender for letter in letters})
        after = self.station.take(state, letters)
        for sender, receiver, size, seconds in self.timed:
            after.survey.time(sender, receiver, size, seconds)
        self.timed = []
        return {STATE: after.to_json(), TAKEN: [list(one) for one in taken], RUNS: runs}

    def _fetch(self, state: SiteState) -> Iterator[tuple[str, int]]:
        """Copy letters to the checkpoint, of every sender in order, without gaps, until a batch has enough."""
        me, size, began = self.station.name, 0, time.monotonic()
        for site in self.station.others:
            sender = self.station.names[site]
            expected, asked = state.taken.get(sender, 0) + 1, time.monotonic()
            for number, blob in self.exchange.fetch(sender, me, expected - 1):
                if number != expected:
                    raise CheckpointError(
                        f"{self.exchange.show(sender, me, expected)} is missing, and letter {number} is there: put it back, or begin anew at all sites with a new exchange and new checkpoints"
                    )
                self.timed.append((sender, me, len(blob), time.monotonic() - asked))
                where = self.exchange.show(sender, me, number)
                Letter.from_bytes(blob, where).check_address(sender, me, number, where)
                self.folder.write(LETTERS, f"{sender}-{number}", blob, durably=True)
                expected, size = expected + 1, size + len(blob)
                yield sender, number
                asked = time.monotonic()
                if size > BATCH_BYTES or time.monotonic() - began > BATCH_S:
                    break

    def _read(self, sender: str, number: int) -> Letter:
        """A letter that the checkpoint has."""
        return read_taken(self.folder, sender, self.station.name, number)

    def messages(self, intent: Intent) -> list[Message]:
        """What the letters of a batch bring its units."""
        letters = [self._read(sender, number) for sender, number in intent.sites[TAKEN]]
        return self.station.deal(SiteState.of(intent.sites[STATE]), letters)

    def check_others(self) -> None:
        """Refuse sites that run another watersmeet, whose queries cannot be compared, or another query."""
        self.greeted = time.monotonic()
        for site, who in self.exchange.greetings().items():
            if site == self.station.name:
                continue
            for key, what in (
                ("format", "another version of watersmeet"),
                ("fingerprint", "another query, or other columns, windows or sites="),
            ):
                if who.get(key) != self.who[key]:
                    differing = find_differences(who.get(PARTS, {}), self.who.get(PARTS, {}))
                    differs = f"; different: {', '.join(differing)}" if differing else ""
                    raise StreamError(
                        f"site {site} runs {what} than {self.station.name} ({who.get('query')!r} there, {self.who['query']!r} here{differs}); run the same at all sites"
                    )

    # ------------------------------------------------------------ after a batch

    def settle(self, before: BatchManifest, after: BatchManifest, intent: Intent, account: Account) -> list[str]:
        """The state after a batch, and its letters, which are files of the checkpoint until they have been taken."""
        station = self.station
        streams = {name: spec for name, spec in station.plan.streams.items() if name in station.streams}
        measures = [report.measured for report in account.reports.values()]
        state, spans = station.settle(SiteState.of(intent.sites[STATE]), watermarks(streams, after.maxima), measures)
        outs = {site: read_out(self._outs(after, site, intent.batch)) for site in station.others}
        state, letters = station.post(state, spans, intent.batch, outs, due=self._due())
        name, expects = station.name, station.expect(SiteState.of(before.sites.get(STATE, {})), state)
        self.shipped, self.expected = [], [[name, to, size] for to, size in expects.items()]
        for letter in letters:
            letter.run = self.who[RUN]
            blob = letter.to_bytes()
            self.folder.write(LETTERS, f"to-{letter.to}-{letter.number}", blob, durably=True)
            station.count(state, letter, letter.sizes, len(blob))
            self.shipped.append([station.name, letter.to, 1, letter.rows, len(blob)])
            self.spoken[letter.to] = time.monotonic()
        after.expire({name_out(site): intent.batch + 1 for site in station.others})
        after.sites = {STATE: state.to_json(), RUNS: intent.sites[RUNS]}
        return []

    def _due(self) -> list[str]:
        """The sites that have not been written to for long."""
        now, others = time.monotonic(), [self.station.names[n] for n in self.station.others]
        return [site for site in others if now - self.spoken.setdefault(site, now) > self.patience_s / 4]

    def _outs(self, after: BatchManifest, site: int, batch: int) -> list[pa.Table]:
        store = FileStore(self.folder, "")
        infos = [info for _, name, info in after.segments() if name == name_out(site)]
        return [store.read(info).table for info in infos if info.min_ts == batch]

    def after_commit(self, after: BatchManifest) -> None:
        """Send what the checkpoint has to send, and forget what has been taken."""
        state, names = SiteState.of(after.sites.get(STATE, {})), set(self.folder.names(LETTERS))
        unsent = list_waiting(after)
        for to in (self.station.names[n] for n in self.station.others):
            waiting = unsent.get(to, range(1, 1))
            with self._at_exchange():
                self._send(to, waiting)
                self.exchange.forget(self.station.name, to, waiting.start - 1)
            gone = {n for n in names if n.startswith(f"to-{to}-")} - {f"to-{to}-{n}" for n in waiting}
            gone |= {f"{to}-{n}" for n in range(1, state.taken.get(to, 0) + 1)} & names
            for name in gone:
                self.folder.delete(LETTERS, name)

    def _send(self, to: str, waiting: range) -> None:
        """Put the letters that are not in the exchange; where that is not known, it is asked."""
        me, known = self.station.name, self.posted.pop(to, None)
        unsent = self.exchange.find_unsent(me, to, waiting) if known is None else [n for n in waiting if n > known]
        for number in unsent:
            blob, began = read_sent(self.folder, me, to, number), time.monotonic()
            self.exchange.put(me, to, number, blob)
            self.timed.append((me, to, len(blob), time.monotonic() - began))
        self.posted[to] = waiting.stop - 1

    def _note_silence(self, heard: Collection[str]) -> None:
        """Warn of sites from which nothing has come for long: results wait for them."""
        now = time.monotonic()
        for site in (self.station.names[n] for n in self.station.others):
            since = now if site in heard else self.quiet.setdefault(site, now)
            if site in heard:
                self.quiet.pop(site, None)
            elif now - since > self.patience_s:
                self.quiet[site] = float("inf")  # once
                logger.warning(
                    "nothing has come from site %s for %.0f s: results that need it wait; see that its query runs, and that it reaches the exchange",
                    site,
                    now - since,
                )
