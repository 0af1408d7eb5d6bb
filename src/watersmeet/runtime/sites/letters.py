"""The letters of a site in the batches of its Spark application: which ones a batch takes, and what it sends when it is committed.

    1  list the exchange; copy what the batch takes to the checkpoint            letters/tokyo-17
    2  intent n: the letters that it takes, and the site's state with them       a replay takes the same
    3  the rounds; then this site's own letters, as files of the checkpoint      letters/to-tokyo-9
    4  manifest n: the site's state, with the numbers of letters
    5  put letters into the exchange, and delete from it those that have been taken

Whatever dies between 4 and 5 is made good by the next batch, or by the next run: a letter that is there already stays.

Invariant: a letter is taken in exactly one committed batch, and sent only if the batch that made it is committed. Nobody waits for another site inside a batch.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from watersmeet.dataflow.clock import watermarks
from watersmeet.dataflow.contract import Message
from watersmeet.errors import CheckpointError, StreamError
from watersmeet.runtime.rounds.checkpoint import LETTERS, StateFolder
from watersmeet.runtime.rounds.files import FileStore
from watersmeet.runtime.rounds.supersteps import Account
from watersmeet.runtime.sites.exchange import Exchange
from watersmeet.sites.kept import name_out
from watersmeet.sites.letter import Letter
from watersmeet.sites.station import SiteState, Station
from watersmeet.storage.manifest import BatchManifest, Intent

logger = logging.getLogger(__name__)
RUN = "run"
"""The file that has the name of this run, and the key of it in what sites say of themselves."""
BATCH_BYTES = 256 * 2**20
"""A batch takes letters of about so many bytes; the others wait."""
STATE, TAKEN, RUNS = "state", "letters", "runs"


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
    patience_s: float = 300.0
    """A site that has been silent for so long is warned of, once."""

    def begin(self) -> None:
        """Say who this site is; refuse to begin anew where others go on."""
        me, names = self.station.name, self.folder.names(LETTERS)
        run = self.folder.read(LETTERS, RUN).to_pybytes().decode() if RUN in names else uuid.uuid4().hex
        before = self.exchange.greetings()
        if before.get(me, {}).get(RUN, run) != run and len(before) > 1:
            raise StreamError(
                f"site {me} has run with this exchange before, from another checkpoint, and other sites go on from there: start it with that checkpoint, or begin anew at all sites, with a new exchange and new checkpoints"
            )
        self.folder.write(LETTERS, RUN, run.encode(), durably=True)
        self.who[RUN] = run
        self.exchange.greet(me, self.who)  # the others refuse it, too, if it is not what they are
        self.check_others()

    # ------------------------------------------------------------ before a batch

    def next(self, before: BatchManifest) -> dict[str, Any]:
        """The letters that a batch takes, and the state with them."""
        self.check_others()
        state, runs = SiteState.of(before.sites.get(STATE, {})), dict(before.sites.get(RUNS, {}))
        taken = list(self._fetch(state))
        letters = [self._read(sender, number) for sender, number in taken]
        for letter in letters:
            if runs.setdefault(letter.sender, letter.run) != letter.run:
                raise StreamError(
                    f"site {letter.sender} has begun anew, with an empty checkpoint, while {self.station.name} goes on: restore its checkpoint, or begin anew at all sites, with a new exchange and new checkpoints"
                )
        self._note_silence({letter.sender for letter in letters})
        after, _ = self.station.take(state, letters)
        return {STATE: after.to_json(), TAKEN: [list(one) for one in taken], RUNS: runs}

    def _fetch(self, state: SiteState) -> Iterator[tuple[str, int]]:
        """Copy letters to the checkpoint, of every sender in order, without gaps."""
        me, size = self.station.name, 0
        for site in self.station.others:
            sender = self.station.names[site]
            expected = state.taken.get(sender, 0) + 1
            there = [n for n in self.exchange.numbers(sender, me) if n >= expected]
            if there and there[0] > expected:
                raise CheckpointError(
                    f"{self.exchange.show(sender, me, expected)} is missing, and letter {there[0]} is there: put it back, or begin anew at all sites with a new exchange and new checkpoints"
                )
            for number in there:
                if number != expected or size > BATCH_BYTES:
                    break
                blob = self.exchange.get(sender, me, number)
                Letter.from_bytes(blob, self.exchange.show(sender, me, number))
                self.folder.write(LETTERS, f"{sender}-{number}", blob, durably=True)
                expected, size = expected + 1, size + len(blob)
                yield sender, number

    def _read(self, sender: str, number: int) -> Letter:
        """A letter that the checkpoint has."""
        name = f"{sender}-{number}"
        try:
            blob = self.folder.read(LETTERS, name).to_pybytes()
        except FileNotFoundError:
            blob = self.exchange.get(sender, self.station.name, number)
        letter = Letter.from_bytes(blob, self.folder.path(LETTERS, name))
        return letter

    def messages(self, before: BatchManifest, intent: Intent) -> list[Message]:
        """What the letters of a batch bring its units."""
        state = SiteState.of(before.sites.get(STATE, {}))
        letters = [self._read(sender, number) for sender, number in intent.sites[TAKEN]]
        return self.station.take(state, letters)[1]

    def check_others(self) -> None:
        """Refuse sites that run another query, or another watersmeet."""
        for site, who in self.exchange.greetings().items():
            if site == self.station.name:
                continue
            for key, what in (
                ("fingerprint", "another query, or other columns, windows or sites="),
                ("format", "another version of watersmeet"),
            ):
                if who.get(key) != self.who[key]:
                    raise StreamError(
                        f"site {site} runs {what} than {self.station.name} ({who.get('query')!r} there, {self.who['query']!r} here); run the same at all sites"
                    )

    # ------------------------------------------------------------ after a batch

    def settle(self, before: BatchManifest, after: BatchManifest, intent: Intent, account: Account) -> list[str]:
        """The state after a batch, and its letters, which are files of the checkpoint until they have been taken."""
        station = self.station
        streams = {name: spec for name, spec in station.plan.streams.items() if name in station.streams}
        state, spans = station.settle(SiteState.of(intent.sites[STATE]), watermarks(streams, after.maxima))
        outs = {site: self._outs(after, site, intent.batch) for site in station.others}
        state, letters = station.post(state, spans, intent.batch, outs)
        self.shipped = []
        for letter in letters:
            letter.run = self.who[RUN]
            blob, rows = letter.to_bytes(), sum(table.num_rows for table in letter.items.values())
            self.folder.write(LETTERS, f"to-{letter.to}-{letter.number}", blob, durably=True)
            self.shipped.append([station.name, letter.to, 1, rows, len(blob)])
        after.expire({name_out(site): intent.batch + 1 for site in station.others})
        after.sites = {STATE: state.to_json(), RUNS: intent.sites[RUNS]}
        return []

    def _outs(self, after: BatchManifest, site: int, batch: int) -> list[pa.Table]:
        store = FileStore(self.folder, "")
        infos = [info for _, name, info in after.segments() if name == name_out(site)]
        return [store.read(info).table for info in infos if info.min_ts == batch]

    def after_commit(self, after: BatchManifest) -> None:
        """Send what the checkpoint has to send, and forget what has been taken."""
        state = SiteState.of(after.sites.get(STATE, {}))
        me, names = self.station.name, set(self.folder.names(LETTERS))
        for site in self.station.others:
            to = self.station.names[site]
            last, waiting = state.sent.get(to, 0), len(state.batches.get(to, []))
            there = set(self.exchange.numbers(me, to))
            for number in range(last - waiting + 1, last + 1):
                if number not in there:
                    self.exchange.put(me, to, number, self.folder.read(LETTERS, f"to-{to}-{number}").to_pybytes())
            for number in there:
                if number <= last - waiting:
                    self.exchange.drop(me, to, number)
            needed = {f"to-{to}-{n}" for n in range(last - waiting + 1, last + 1)}
            gone = {n for n in names if n.startswith(f"to-{to}-")} - needed
            gone |= {f"{to}-{n}" for n in range(1, state.taken.get(to, 0) + 1)} & names
            for name in gone:
                self.folder.delete(LETTERS, name)

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
