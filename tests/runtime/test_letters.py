"""A site's letters, batch by batch, without Spark: what is taken and sent, and every way in which an exchange can be wrong."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.errors import CheckpointError, StreamError
from watersmeet.runtime.rounds.checkpoint import LETTERS, StateFolder
from watersmeet.runtime.rounds.supersteps import Account
from watersmeet.runtime.sites.exchange import FolderExchange
from watersmeet.runtime.sites.letters import Correspondence
from watersmeet.sites.station import Station
from watersmeet.storage.manifest import BatchManifest, Intent

TEXT = "SELECT a.k FROM s a, t b WHERE a.k = b.k WINDOW = 3 SECONDS"


def plan(text: str = TEXT) -> Any:
    table = pa.table({"k": [1], "ts": pa.array([0], pa.timestamp("us"))})
    streams = {name: wm.Stream(table, time="ts", site=site) for name, site in (("s", "paris"), ("t", "tokyo"))}
    return wm.sql(text, streams).plan


class Site:
    """A site that gets no rows: its streams go on by themselves."""

    def __init__(self, folder: Path, at: str, text: str = TEXT, checkpoint: str = "ck") -> None:
        own = plan(text)
        state = StateFolder.under(str(folder / f"{checkpoint}-{at}"))
        state.prepare(LETTERS)
        who = {"fingerprint": own.fingerprint(), "format": 1, "query": text}
        station = Station(own, own.site_names.index(at))
        self.letters = Correspondence(station, FolderExchange(folder / "exchange"), state, who)
        self.stream = "s" if at == "paris" else "t"
        self.latest = BatchManifest(-1, "id", "", "")
        self.letters.begin()

    def play(self, time: int, *, commits: bool = True) -> list[list[Any]]:
        """A batch, in which the stream reaches a time: the letters that it takes."""
        number = self.latest.batch + 1
        intent = Intent(number, "id", "", number - 1, {}, sites=self.letters.next(self.latest))
        after = BatchManifest(number, "id", "", "", maxima={self.stream: time})
        self.letters.settle(self.latest, after, intent, Account())
        if commits:
            self.latest = after
            self.letters.after_commit(after)
        return intent.sites["letters"]  # type: ignore[no-any-return]


def test_letters_are_taken_in_order_each_once_and_go_when_they_have_been_taken(tmp_path: Path) -> None:
    paris, tokyo = Site(tmp_path, "paris"), Site(tmp_path, "tokyo")
    assert paris.play(10) == []
    assert paris.play(20) == []
    assert tokyo.play(10) == [["paris", 1], ["paris", 2]]
    assert tokyo.play(15) == []
    assert paris.letters.exchange.numbers("paris", "tokyo") == [1, 2]
    assert paris.play(30) == [["tokyo", 1], ["tokyo", 2]]
    assert paris.letters.exchange.numbers("paris", "tokyo") == [3]


def test_a_batch_that_was_not_committed_is_played_again_with_the_same_letters(tmp_path: Path) -> None:
    paris, tokyo = Site(tmp_path, "paris"), Site(tmp_path, "tokyo")
    paris.play(10)
    assert tokyo.play(10, commits=False) == [["paris", 1]]
    assert tokyo.letters.exchange.numbers("tokyo", "paris") == []
    assert tokyo.play(10) == [["paris", 1]]
    assert tokyo.letters.exchange.numbers("tokyo", "paris") == [1]


def test_a_site_that_died_before_it_sent_sends_when_it_goes_on(tmp_path: Path) -> None:
    paris = Site(tmp_path, "paris")
    paris.play(10)
    path = tmp_path / "exchange" / "letters" / "paris" / "tokyo" / "1"
    path.unlink()
    paris.letters.after_commit(paris.latest)
    assert path.exists()


def test_a_letter_that_is_missing_or_damaged_is_named(tmp_path: Path) -> None:
    paris, tokyo = Site(tmp_path, "paris"), Site(tmp_path, "tokyo")
    for time in (10, 20, 30):
        paris.play(time)
    folder = tmp_path / "exchange" / "letters" / "paris" / "tokyo"
    whole = (folder / "1").read_bytes()
    (folder / "1").write_bytes(whole[:-9] + b"?" + whole[-8:])
    with pytest.raises(CheckpointError, match=r"letters/paris/tokyo/1 is damaged"):
        tokyo.play(10)
    (folder / "1").write_bytes(whole[:8])
    with pytest.raises(CheckpointError, match=r"letters/paris/tokyo/1 is no letter of a site, or it was cut"):
        tokyo.play(10)
    (folder / "1").unlink()
    with pytest.raises(CheckpointError, match=r"letters/paris/tokyo/1 is missing, and letter 2 is there"):
        tokyo.play(10)
    (folder / "1").write_bytes(whole)
    assert len(tokyo.play(10)) == 3


def test_sites_that_run_another_query_are_refused_by_both(tmp_path: Path) -> None:
    paris = Site(tmp_path, "paris")
    with pytest.raises(StreamError, match="site paris runs another query"):
        Site(tmp_path, "tokyo", TEXT.replace("3 SECONDS", "4 SECONDS"))
    with pytest.raises(StreamError, match=r"site tokyo runs another query.*run the same at all sites"):
        paris.play(10)


def test_a_site_that_begins_anew_while_others_go_on_is_refused(tmp_path: Path) -> None:
    paris, tokyo = Site(tmp_path, "paris"), Site(tmp_path, "tokyo")
    paris.play(10)
    tokyo.play(10)
    with pytest.raises(StreamError, match="site paris has run with this exchange before"):
        Site(tmp_path, "paris", checkpoint="new")
    (tmp_path / "exchange" / "sites" / "paris.json").unlink()
    again = Site(tmp_path, "paris", checkpoint="new")
    for number in (1, 2):
        (tmp_path / "exchange" / "letters" / "paris" / "tokyo" / str(number)).unlink(missing_ok=True)
        again.play(10 + number)
    with pytest.raises(StreamError, match="site paris has begun anew, with an empty checkpoint"):
        tokyo.play(20)
    assert Site(tmp_path, "tokyo").letters.who["run"] == tokyo.letters.who["run"]


def test_a_silent_site_is_warned_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    paris = Site(tmp_path, "paris")
    paris.letters.patience_s = -1.0
    with caplog.at_level(logging.WARNING):
        for time in (10, 20, 30):
            paris.play(time)
    assert [record.message.partition(" for ")[0] for record in caplog.records] == ["nothing has come from site tokyo"]
