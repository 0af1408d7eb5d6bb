"""`wm.state` and `watersmeet state`: what a checkpoint keeps, without Spark, compared with what the streams brought."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from typer.testing import CliRunner

import watersmeet as wm
from tests.rounds.test_damage import built
from tests.rounds.test_subscriptions import SPECS, batch_of
from watersmeet.cli import app
from watersmeet.errors import CheckpointError, OptionError, WatersmeetError
from watersmeet.runtime.checkpoints.stored import open_checkpoint
from watersmeet.runtime.checkpoints.summary import sum_up
from watersmeet.storage.document import FORMAT

WINDOW_US = 4_000_000


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """After six files of each stream, two a batch: batches 0 to 2."""
    return Path(shutil.copytree(built("query", 6, ""), tmp_path / "copy")) / "ck"


def brought(files: range) -> set[tuple[str, int, int, int]]:
    rows = [(n, row) for n in SPECS for f in files for row in batch_of(f)[n].to_pylist()]
    return {(n, row["id"], row["k"], int(row["ts"].timestamp() * 1_000_000)) for n, row in rows}


def test_state_is_what_the_streams_brought_less_what_has_expired(checkpoint: Path) -> None:
    table = wm.state(checkpoint)
    assert table.column_names == ["unit", "alias", "event_time", "expiry", "keys", "payload", "segment"]
    times = table.column("event_time").cast(pa.int64()).to_pylist()
    found = {
        (alias, value_of(payload, "id"), value_of(keys, "k"), ts)
        for alias, payload, keys, ts in zip(
            table["alias"].to_pylist(), table["payload"].to_pylist(), table["keys"].to_pylist(), times, strict=True
        )
    }
    assert len(found) == table.num_rows, "a row is there twice"
    watermark = max(ts for _, _, _, ts in brought(range(6)))
    needed = {row for row in brought(range(6)) if row[3] >= watermark - WINDOW_US}
    assert needed <= found <= brought(range(6))
    assert pc.subtract(table["expiry"].cast(pa.int64()), table["event_time"].cast(pa.int64())).unique().to_pylist() == [
        WINDOW_US
    ]


def value_of(text: str, name: str) -> int:
    return int(json.loads(text)[name])


def test_one_alias_has_its_own_columns_and_types(checkpoint: Path) -> None:
    table = wm.state(checkpoint, alias="r")
    assert table.schema.names == ["unit", "event_time", "expiry", "k", "id"]
    assert table.schema.field("k").type == pa.int64()
    whole = wm.state(checkpoint)
    assert table.num_rows == whole.filter(pc.equal(whole["alias"], "r")).num_rows


def test_an_earlier_batch(checkpoint: Path) -> None:
    before = wm.state(checkpoint, alias="r", batch=1)
    assert max(before["id"].to_pylist()) < max(wm.state(checkpoint, alias="r")["id"].to_pylist())


def test_a_registry_keeps_rows_of_streams() -> None:
    table = wm.state(built("registered", 6, "") / "ck")
    assert table.num_rows
    assert set(SPECS) <= set(table["alias"].to_pylist())


def test_it_needs_neither_a_jvm_nor_pyspark(checkpoint: Path) -> None:
    program = f"import sys; sys.modules['pyspark'] = None; import watersmeet as wm; print(wm.state({str(checkpoint)!r}).num_rows)"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(said.stdout) == wm.state(checkpoint).num_rows


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"alias": "nobody"}, OptionError, "keeps rows of r, s"),
        ({"batch": 0}, OptionError, "has the state after 1, 2; start\\(keep=...\\) keeps more"),
    ],
)
def test_what_is_not_there_is_named(checkpoint: Path, given: dict, error: type[WatersmeetError], said: str) -> None:
    with pytest.raises(error, match=said):
        wm.state(checkpoint, **given)


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="give the folder that start"):
        wm.state(7)
    with pytest.raises(CheckpointError, match="has no state of start"):
        wm.state(tmp_path)
    (tmp_path / "metadata").write_text('{"id": "x"}')
    with pytest.raises(CheckpointError, match="query of dataframe"):
        wm.state(tmp_path)


def test_a_damaged_segment_is_an_error_and_never_a_row(checkpoint: Path) -> None:
    name = wm.state(checkpoint)["segment"][0].as_py()
    path = checkpoint / "watersmeet" / "segments" / name
    blob = bytearray(path.read_bytes())
    blob[len(blob) // 2] ^= 1
    path.write_bytes(blob)
    with pytest.raises(CheckpointError, match=name):
        wm.state(checkpoint)


def test_the_summary_has_the_figures_of_the_rows(checkpoint: Path) -> None:
    table, summary = wm.state(checkpoint), sum_up(open_checkpoint(checkpoint))
    assert (summary.rows, summary.batch, summary.batches) == (table.num_rows, 2, (1, 2))
    for kind in summary.kinds:
        own = wm.state(checkpoint, alias=kind.name)
        times = own["event_time"].cast(pa.int64())
        assert (kind.oldest, kind.newest) == (pc.min(times).as_py(), pc.max(times).as_py())
        counts = own.group_by("unit").aggregate([("unit", "count")])["unit_count"].to_pylist()
        assert kind.skew == pytest.approx(max(counts) / (sum(counts) / summary.units))
    assert summary.watermarks == dict.fromkeys(SPECS, 1_700_000_010_000_000)


def test_the_command_prints_it(checkpoint: Path) -> None:
    said = CliRunner().invoke(app, ["state", str(checkpoint)])
    summary = sum_up(open_checkpoint(checkpoint))
    assert said.exit_code == 0
    for part in (
        summary.fingerprint,
        f"format {FORMAT}",
        "the state after 1, 2 is there",
        f"{summary.rows:,} rows",
        "skew",
    ):
        assert part in said.output
    wrong = CliRunner().invoke(app, ["state", str(checkpoint), "--verify", "--restore", "1"])
    assert (wrong.exit_code, "two things" in wrong.stderr) == (2, True)
