"""A site's letters, batch by batch, without Spark, by both carriers: what is taken and sent, and every way in which an exchange can be wrong."""

from __future__ import annotations

import logging
import pickle
import random
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import watersmeet as wm
from tests.runtime.carriers import Faulty, running_address
from watersmeet.errors import CheckpointError, OptionError, StreamError
from watersmeet.runtime.checkpoints.verify import verify
from watersmeet.runtime.rounds.batch import Account
from watersmeet.runtime.rounds.checkpoint import LETTERS, StateFolder
from watersmeet.runtime.sites import exchange as exchange_module
from watersmeet.runtime.sites import letters as letters_module
from watersmeet.runtime.sites.letters import Correspondence
from watersmeet.runtime.sites.start import introduce, open_exchange
from watersmeet.sites.site_state import SiteState
from watersmeet.sites.station import Station
from watersmeet.storage.manifest import BatchManifest, Intent

TEXT = "SELECT a.k, b.k AS same FROM s a, t b WHERE a.k = b.k WINDOW = 3 SECONDS"
SITES = ("paris", "tokyo")


@pytest.fixture(params=["folder", "topics"])
def address(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An exchange in which it is looked in every batch who the others are."""
    monkeypatch.setattr(letters_module, "GREET_S", 0.0)
    with running_address(request.param, tmp_path, SITES) as found:
        yield found


def plan(text: str = TEXT, of_tokyo: pa.DataType | None = None, sites: wm.Sites | None = None) -> Any:
    """As a site knows the query, and the type of tokyo's key."""
    times = pa.array([0], pa.timestamp("us"))
    tables = [pa.table({"k": pa.array([1], kind), "ts": times}) for kind in (pa.int64(), of_tokyo or pa.int64())]
    streams = {
        name: wm.Stream(table, time="ts", site=site) for name, site, table in zip("st", SITES, tables, strict=True)
    }
    return wm.sql(text, streams, **({} if sites is None else {"sites": sites})).plan


class Site:
    """A site that gets no rows: its streams go on by themselves."""

    def __init__(
        self, folder: Path, address: str, at: str, own: Any = None, checkpoint: str = "ck", **who: Any
    ) -> None:
        own = plan() if own is None else own
        state = StateFolder.under(str(folder / f"{checkpoint}-{at}"))
        state.prepare(LETTERS)
        station = Station(own, own.site_names.index(at))
        said = introduce(station) | who
        self.line = Faulty(address, SITES, at)
        self.letters = Correspondence(station, self.line, state, said)
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


def both(folder: Path, address: str) -> tuple[Site, Site]:
    return Site(folder, address, "paris"), Site(folder, address, "tokyo")


def numbers(address: str, sender: str, to: str) -> list[int]:
    """The letters that are in an exchange."""
    return [number for number, _ in open_exchange(address, SITES, to).fetch(sender, to, 0)]


def test_letters_are_taken_in_order_each_once_and_go_when_they_have_been_taken(tmp_path: Path, address: str) -> None:
    paris, tokyo = both(tmp_path, address)
    assert paris.play(10) == []
    assert paris.play(20) == []
    assert tokyo.play(10) == [["paris", 1], ["paris", 2]]
    assert tokyo.play(15) == []
    assert numbers(address, "paris", "tokyo") == [1, 2]
    assert paris.play(30) == [["tokyo", 1], ["tokyo", 2]]
    assert tokyo.play(20) == [["paris", 3]]
    if not address.startswith("kafka:"):  # the played broker deletes nothing
        assert numbers(address, "paris", "tokyo") == [3]


def test_letters_are_timed_on_their_way_and_a_replay_has_the_same_times(tmp_path: Path, address: str) -> None:
    paris, tokyo = both(tmp_path, address)
    for time_ in (10, 20, 30):
        paris.play(time_)
        tokyo.play(time_)
    intent = Intent(9, "id", "", 8, {}, sites=paris.letters.next(paris.latest))
    seen = SiteState.of(intent.sites["state"]).survey.lines
    assert set(seen) == {"paris>tokyo", "tokyo>paris"}
    assert all(line.weight > 1 and line.seconds > 0 and line.bytes > 100 for line in seen.values())
    for _ in range(2):  # the intent has them: what is decided from them is decided alike again
        after = BatchManifest(9, "id", "", "", maxima={"s": 40})
        paris.letters.settle(paris.latest, after, intent, Account())
        assert SiteState.of(after.sites["state"]).survey.lines == seen


def test_a_letter_in_parts_arrives_whole(tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange_module, "PART_BYTES", 100)
    paris, tokyo = both(tmp_path, address)
    for time_ in (10, 20):
        paris.play(time_)
    assert tokyo.play(10) == [["paris", 1], ["paris", 2]]
    assert tokyo.letters.exchange.find_unsent("paris", "tokyo", range(1, 4)) == [3]


def test_a_letter_of_which_a_part_is_missing_is_sent_again(
    tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    paris, tokyo = both(tmp_path, address)
    own, whole = paris.line.inner, bytes(range(250))
    monkeypatch.setattr(exchange_module, "PART_BYTES", 100)
    _put_beginning(own, whole)
    assert list(tokyo.line.inner.fetch("paris", "tokyo", 0)) == []
    assert own.find_unsent("paris", "tokyo", range(1, 3)) == [1, 2]
    own.put("paris", "tokyo", 1, whole)
    assert list(tokyo.line.inner.fetch("paris", "tokyo", 0)) == [(1, whole)]


def _put_beginning(exchange: Any, whole: bytes) -> None:
    """The first part of letter 1, and then the sender dies."""
    if hasattr(exchange, "_producer"):
        exchange._send(exchange._name("paris", "tokyo"), [(b"1 0/3", whole[:100])])
        return
    folder = Path(exchange.address) / "letters" / "paris" / "tokyo"
    folder.mkdir(parents=True)
    (folder / "1.0-3").write_bytes(whole[:100])


def test_repeated_letters_are_taken_once(tmp_path: Path, address: str) -> None:
    paris, tokyo = both(tmp_path, address)
    paris.line.times = 3
    assert tokyo.play(5) == []
    for time_, number in ((10, 1), (20, 2), (30, 3)):
        paris.play(time_)
        assert tokyo.play(time_) == [["paris", number]]


def test_a_batch_that_was_not_committed_is_played_again_with_the_same_letters(tmp_path: Path, address: str) -> None:
    paris, tokyo = both(tmp_path, address)
    paris.play(10)
    assert tokyo.play(10, commits=False) == [["paris", 1]]
    assert numbers(address, "tokyo", "paris") == []
    assert tokyo.play(10) == [["paris", 1]]
    assert numbers(address, "tokyo", "paris") == [1]


def test_a_site_that_died_before_it_sent_sends_when_it_goes_on(tmp_path: Path, address: str) -> None:
    paris = Site(tmp_path, address, "paris")
    paris.play(10)
    paris.line.is_cut = True
    paris.play(20)
    assert numbers(address, "paris", "tokyo") == [1]
    again = Site(tmp_path, address, "paris")
    again.letters.after_commit(paris.latest)
    assert numbers(address, "paris", "tokyo") == [1, 2]


def test_a_cut_line_is_warned_of_and_loses_nothing(
    tmp_path: Path, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    paris, tokyo = both(tmp_path, address)
    paris.play(10)
    tokyo.play(10)
    with caplog.at_level(logging.WARNING):
        paris.line.is_cut = True
        for time_ in (20, 30):
            assert paris.play(time_) == []
        paris.line.is_cut = False
        assert paris.play(40) == [["tokyo", 1]]
    assert tokyo.play(20) == [["paris", n] for n in (2, 3, 4)]
    cut, well = [record.getMessage() for record in caplog.records]
    assert cut.startswith(f"site paris does not reach its exchange {address} (the line is cut)")
    assert "see that this site reaches the exchange" in cut
    assert well == f"site paris reaches its exchange {address} again"


def test_a_letter_that_is_missing_or_damaged_is_named(tmp_path: Path, address: str) -> None:
    where = "letter {} in the topic calls.paris.tokyo" if address.startswith("kafka:") else "letters/paris/tokyo/{}"
    paris, tokyo = both(tmp_path, address)
    paris.line.changed = {
        2: lambda blob: blob[:-9] + bytes([blob[-9] ^ 1]) + blob[-8:],
        3: lambda blob: blob[:8],
    }
    paris.line.lost = {4}
    for time_ in (10, 20, 30, 40, 50):
        paris.play(time_)
    for number, said in (
        (2, "is damaged"),
        (3, "is no letter of a site, or it was cut"),
        (4, "is missing, and letter 5"),
    ):
        tokyo.latest.sites = _having_taken(tokyo, number - 1)
        with pytest.raises(CheckpointError, match=f"{where.format(number)}.*{said}"):
            tokyo.play(10)


def _having_taken(site: Site, number: int) -> dict[str, Any]:

    return {"state": SiteState(taken={"paris": number}).to_json(), "runs": {}}


def spoil(path: Path, damage: str) -> None:
    """Damage a file of a checkpoint; a sibling's: another letter of the same kind lies in its place."""
    whole = path.read_bytes()
    if damage == "gone":
        path.unlink()
    elif damage == "a sibling's":
        kind = path.name.rpartition("-")[0]
        siblings = sorted(p for p in path.parent.glob(f"{kind}-*") if p != path and p.name.rpartition("-")[0] == kind)
        path.write_bytes(siblings[0].read_bytes() if siblings else b"0" * len(whole))
    elif damage == "flip":
        middle = len(whole) // 2
        path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    else:
        path.write_bytes(whole[: {"empty": 0, "half": len(whole) // 2, "short": len(whole) - 1}[damage]])


@pytest.mark.parametrize("damage", ["empty", "half", "short", "flip", "gone", "a sibling's"])
def test_every_letter_of_a_checkpoint_is_whole_or_named(tmp_path: Path, damage: str) -> None:
    """A site with two letters that wait for the line, and two that a batch has taken that was not committed: every file of them."""
    seen = set[str]()
    for number in range(5):
        folder = tmp_path / f"{number}"
        address = str(folder / "exchange")
        paris, tokyo = both(folder, address)
        paris.play(5)
        for time_ in (10, 20):
            tokyo.play(time_)
        paris.line.is_cut = True
        for time_ in (10, 20):
            paris.play(time_)
        paris.line.is_cut = False
        intent = Intent(3, "id", "", 2, {"at": "paris"}, sites=paris.letters.next(paris.latest))
        keep(paris, intent)
        assert [f for f in verify(folder / "ck-paris") if f.file.startswith("watersmeet/letters")] == []
        names = sorted(p.name for p in (folder / "ck-paris" / "watersmeet" / LETTERS).iterdir())
        assert names == ["run", "to-tokyo-1", "to-tokyo-2", "to-tokyo-3", "tokyo-1", "tokyo-2"]
        name = [n for n in names if n != "to-tokyo-1"][number]  # the first one tokyo has taken
        seen.add(name)
        spoil(folder / "ck-paris" / "watersmeet" / LETTERS / name, damage)
        found = [f.file for f in verify(folder / "ck-paris") if f.file.startswith("watersmeet/letters")]
        assert found == [f"watersmeet/letters/{name}"] or (
            name == "run" and damage in ("flip", "a sibling's")
        )  # another name of a run: only the exchange knows the right one
        with pytest.raises((CheckpointError, StreamError), match=f"{LETTERS}/{name} |{LETTERS}/{name}[);]"):
            go_on(folder, address, intent, paris.latest)
        assert numbers(address, "paris", "tokyo") in ([], [1], [1, 2]), "nothing that is damaged was sent"
    assert len(seen) == 5


def go_on(folder: Path, address: str, intent: Intent, latest: BatchManifest) -> None:
    """A process that plays a batch again, and sends what waits."""
    again = Site(folder, address, "paris")
    again.letters.messages(intent)
    again.letters.after_commit(latest)


def keep(site: Site, intent: Intent) -> None:
    """Write the latest manifest and an intent to a site's checkpoint."""
    folder = site.letters.folder
    folder.save("manifests", site.latest.batch, site.latest)
    folder.save("intents", intent.batch, intent)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"own": plan(TEXT.replace("3 SECONDS", "4 SECONDS"))}, "another query.* 4 SECONDS.*; different: windows"),
        ({"own": plan(of_tokyo=pa.int32())}, "another query.*; different: columns and their types"),
        ({"own": plan(sites=wm.Sites(results_at="tokyo"))}, "another query.*; different: sites="),
        ({"own": plan(TEXT.replace("3 SECONDS", "4 SECONDS")), "format": 2}, "another version of watersmeet"),
    ],
    ids=["query", "schema", "sites=", "version"],
)
def test_sites_that_differ_are_refused_by_both(tmp_path: Path, address: str, other: dict[str, Any], said: str) -> None:
    paris = Site(tmp_path, address, "paris")
    for refuses, site in (
        (lambda: Site(tmp_path, address, "tokyo", **other), "paris"),
        (lambda: paris.play(10), "tokyo"),
    ):
        with pytest.raises(StreamError, match=rf"site {site} runs {said}.*\); run the same at all sites"):
            refuses()


def test_what_only_a_streams_own_site_knows_may_differ(tmp_path: Path, address: str) -> None:
    """Lateness, and what is further ahead than allowed, are said where a stream arrives."""
    times = pa.array([0], pa.timestamp("us"))
    table = pa.table({"k": [1], "ts": times})
    streams = {
        "s": wm.Stream(table, time="ts", site="paris", lateness="1 minute", max_ahead="1 hour"),
        "t": wm.Stream(table, time="ts", site="tokyo"),
    }
    Site(tmp_path, address, "paris", wm.sql(TEXT, streams).plan)
    Site(tmp_path, address, "tokyo")


def test_a_site_that_begins_anew_while_others_go_on_is_refused(tmp_path: Path, address: str) -> None:
    paris, tokyo = both(tmp_path, address)
    paris.play(10)
    tokyo.play(10)
    says = (
        "site paris has run with the exchange .* before, .* start it with that checkpoint "
        r"\(if this is it, restore .*new-paris/watersmeet/letters/run\), or begin anew at all sites"
    )
    with pytest.raises(StreamError, match=says):
        Site(tmp_path, address, "paris", checkpoint="new")
    assert tokyo.play(20) == []  # the others go on as before, and so does the site with its own checkpoint
    assert [number for _, number in paris.play(20)] == [1, 2]
    assert Site(tmp_path, address, "tokyo").letters.who["run"] == tokyo.letters.who["run"]


def test_letters_of_another_run_are_refused(tmp_path: Path, address: str) -> None:
    paris, tokyo = both(tmp_path, address)
    paris.play(10)
    tokyo.play(10)
    paris.letters.who["run"] = "another"
    paris.play(20)
    says = "site paris has begun anew, with an empty checkpoint, while tokyo goes on: restore its checkpoint, or begin"
    with pytest.raises(StreamError, match=says):
        tokyo.play(20)


@pytest.mark.parametrize("seed", range(3))
def test_whatever_happens_every_letter_is_taken_once_and_in_order(tmp_path: Path, address: str, seed: int) -> None:
    """Batches that are not committed, processes that die at any point, letters that are sent twice, and lines that are cut."""
    chance, sites = random.Random(seed), dict(zip(SITES, both(tmp_path, address), strict=True))
    taken: dict[str, list[Any]] = {at: [] for at in SITES}
    for step in range(16 if address.startswith("kafka:") else 60):
        at = chance.choice(SITES)
        site = sites[at]
        site.line.is_cut, site.line.times = chance.random() < 0.2, chance.choice((1, 1, 2))
        commits = chance.random() < 0.8
        found = site.play(10 + step, commits=commits)
        taken[at] += found if commits else []
        if chance.random() < 0.3:  # it dies, and another process goes on from its checkpoint
            sites[at] = Site(tmp_path, address, at)
            sites[at].latest = site.latest
    for round_ in range(3):
        for at, site in sites.items():
            site.line.is_cut = False
            taken[at] += site.play(100 + round_)
    for at, other in (SITES, SITES[::-1]):
        numbers_taken = [number for sender, number in taken[at] if sender == other]
        assert numbers_taken == list(range(1, len(numbers_taken) + 1))
        assert len(numbers_taken) >= _last_sent(sites[other], at) - 1 > 1


def _last_sent(site: Site, to: str) -> int:
    return int(site.latest.sites["state"]["sent"][to])


def test_a_silent_site_is_warned_of_once(tmp_path: Path, address: str, caplog: pytest.LogCaptureFixture) -> None:
    paris = Site(tmp_path, address, "paris")
    paris.letters.patience_s = -1.0
    with caplog.at_level(logging.WARNING):
        for time_ in (10, 20, 30):
            paris.play(time_)
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("nothing has come from site tokyo for ")
    assert "see that its query runs, and that it reaches the exchange" in said


def test_a_site_that_has_nothing_to_say_is_heard_of(tmp_path: Path, address: str) -> None:
    paris, tokyo = both(tmp_path, address)
    for _ in range(2):
        tokyo.play(10)
    assert paris.play(10) == [["tokyo", 1]]
    tokyo.letters.spoken["paris"] -= tokyo.letters.patience_s / 4
    tokyo.play(10)
    assert paris.play(10) == [["tokyo", 2]]


def test_an_exchange_that_cannot_be_reached_is_named_at_once(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    began = time.monotonic()
    with pytest.raises(
        StreamError, match=rf"exchange='kafka:calls@127.0.0.1:{port}': no broker answers.*check the address"
    ):
        open_exchange(f"kafka:calls@127.0.0.1:{port}", SITES, "paris")
    (tmp_path / "file").write_text("")
    with pytest.raises(
        OptionError, match=r"exchange='.*/file/x' cannot be written .*give a folder that all sites reach"
    ):
        open_exchange(f"{tmp_path}/file/x", SITES, "paris")
    with pytest.raises(OptionError, match="write kafka:TOPIC@HOST:PORT"):
        open_exchange("kafka:calls", SITES, "paris")
    assert time.monotonic() - began < 30


def test_an_exchange_that_does_not_answer_when_a_site_begins_is_an_error(tmp_path: Path, address: str) -> None:
    paris = Site(tmp_path, address, "paris")
    paris.line.is_cut = True
    with pytest.raises(OptionError, match=r"exchange='.*' cannot be used \(the line is cut\); see that"):
        paris.letters.begin()


def test_an_exchange_travels_to_where_batches_run(address: str) -> None:
    own = open_exchange(address, SITES, "paris")
    own.put("paris", "tokyo", 1, b"one")
    copy = pickle.loads(pickle.dumps(own))
    assert list(copy.fetch("paris", "tokyo", 0)) == [(1, b"one")]


@pytest.mark.parametrize("given", ["soon", "0 seconds", 5])
def test_patience_is_a_span_of_time(given: Any) -> None:
    with pytest.raises(OptionError, match=r"patience=.*such as '5 minutes'"):
        wm.Sites(patience=given)
    assert wm.Sites(patience="1 minute").patience_us == 60_000_000
