"""State that is exported, edited and imported: the next results are as predicted, and what would place a row elsewhere is refused."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import watersmeet as wm
from tests.rounds.test_damage import build, built, expected, files_of, go_on
from watersmeet.cli import app
from watersmeet.errors import CheckpointError, DataError
from watersmeet.runtime.checkpoints.exports import export_state, import_state
from watersmeet.runtime.checkpoints.verify import verify

ANYONE, ANOTHER = 32, 999
"""The id of a stored row of r that later rows meet, and one that no row has."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return Path(shutil.copytree(built("query", 4, ""), tmp_path / "copy"))


def edit(folder: Path, alias: str, change: Callable[[pa.Table], pa.Table]) -> None:
    path = folder / f"{alias}.parquet"
    pq.write_table(change(pq.read_table(path)), path)


def put(table: pa.Table, name: str, id: int, value: Any) -> pa.Table:
    """Another value in the column of the row that has an id."""
    at = table.column_names.index(name)
    kept = table.column(name)
    return table.set_column(at, name, pc.if_else(pc.equal(table["id"], id), pa.scalar(value, kept.type), kept))


def results_before(root: Path) -> Counter[Any]:
    parts = [json.loads(p.read_text()) for p in (root / "out").glob("part-*")]
    return Counter(tuple(row) for rows in parts for row in rows)


def test_an_edited_row_has_the_predicted_results(root: Path, tmp_path: Path) -> None:
    done = results_before(root)
    assert export_state(root / "ck", tmp_path / "state") == {
        alias: wm.state(root / "ck", alias=alias).num_rows for alias in "rs"
    }
    edit(tmp_path / "state", "r", lambda t: put(t, "id", ANYONE, ANOTHER))
    assert import_state(root / "ck", tmp_path / "state") == {"r": (1, 0)}
    assert [f for f in verify(root / "ck") if not f.is_harmless] == []
    later = expected("query") - done
    predicted = Counter({(ANOTHER if x == ANYONE else x, y): n for (x, y), n in later.items()})
    assert predicted != later, "the row meets nobody"
    assert go_on(root, "query") - done == predicted


def test_a_deleted_row_has_no_results_any_more(root: Path, tmp_path: Path) -> None:
    done = results_before(root)
    export_state(root / "ck", tmp_path / "state")
    edit(tmp_path / "state", "r", lambda t: t.filter(pc.not_equal(t["id"], ANYONE)))
    assert import_state(root / "ck", tmp_path / "state") == {"r": (0, 1)}
    later = expected("query") - done
    assert go_on(root, "query") - done == Counter({(x, y): n for (x, y), n in later.items() if x != ANYONE})


def test_an_export_that_nobody_has_edited_changes_nothing(root: Path, tmp_path: Path) -> None:
    before = {name: (root / name).read_bytes() for name in files_of(root)}
    export_state(root / "ck", tmp_path / "state")
    assert import_state(root / "ck", tmp_path / "state") == {}
    assert {name: (root / name).read_bytes() for name in files_of(root)} == before


def test_other_tools_may_write_other_types_of_the_same_values(root: Path, tmp_path: Path) -> None:
    export_state(root / "ck", tmp_path / "state")
    edit(tmp_path / "state", "r", lambda t: t.set_column(t.column_names.index("id"), "id", t["id"].cast(pa.int32())))
    assert import_state(root / "ck", tmp_path / "state") == {}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: put(t, "k", ANYONE, 7), "k of row .* was changed from .* to 7: keys and times place a row"),
        (lambda t: put(t, "_unit", ANYONE, 7), "_unit of row"),
        (lambda t: put(t, "event_time", ANYONE, 0), "event_time of row"),
        (lambda t: pa.concat_tables([t, t.slice(0, 1)]), "are there twice, or were added"),
        (lambda t: put(t, "_segment", ANYONE, "mine"), "no segment 'mine'; rows cannot be added"),
        (lambda t: t.append_column("more", pa.nulls(t.num_rows)), "not those that were exported: more"),
        (lambda t: t.drop_columns(["_row"]), "has no column _row"),
        (lambda t: t.set_column(t.column_names.index("id"), "id", pa.array(["x"] * t.num_rows)), "column id was int64"),
    ],
)
def test_what_would_place_a_row_elsewhere_is_refused(
    root: Path, tmp_path: Path, change: Callable[[pa.Table], pa.Table], said: str
) -> None:
    before = {name: (root / name).read_bytes() for name in files_of(root)}
    export_state(root / "ck", tmp_path / "state")
    edit(tmp_path / "state", "r", change)
    with pytest.raises(DataError, match=said):
        import_state(root / "ck", tmp_path / "state")
    assert {name: (root / name).read_bytes() for name in files_of(root)} == before


def test_the_files_must_be_of_this_state(root: Path, tmp_path: Path) -> None:
    export_state(root / "ck", tmp_path / "state")
    with pytest.raises(CheckpointError, match="is not empty; export to a new folder"):
        export_state(root / "ck", tmp_path / "state")
    (tmp_path / "state" / "r.parquet").rename(tmp_path / "r.parquet")
    with pytest.raises(CheckpointError, match=r"r\.parquet is missing"):
        import_state(root / "ck", tmp_path / "state")
    (tmp_path / "r.parquet").rename(tmp_path / "state" / "r.parquet")
    go_on(root, "query")
    with pytest.raises(CheckpointError, match=r"another state.*: batch differ"):
        import_state(root / "ck", tmp_path / "state")
    with pytest.raises(CheckpointError, match="is no exported state"):
        import_state(root / "ck", tmp_path)


def test_a_batch_that_has_begun_is_ended_first(tmp_path: Path) -> None:
    build(tmp_path, "query", 4, "before the sink")
    export_state(tmp_path / "ck", tmp_path / "state")
    with pytest.raises(CheckpointError, match=r"batch 1 of .* has begun with the state as it was"):
        import_state(tmp_path / "ck", tmp_path / "state")


def test_the_command(root: Path, tmp_path: Path) -> None:
    def command(*arguments: str) -> str:
        done = CliRunner().invoke(app, ["state", str(root / "ck"), *arguments], env={"COLUMNS": "300"})
        assert done.exit_code == 0, done.stderr
        return done.output

    assert f"{wm.state(root / 'ck', alias='r').num_rows} rows of r" in command("--export", str(tmp_path / "state"))
    assert "nothing differs" in command("--import", str(tmp_path / "state"))
    edit(tmp_path / "state", "r", lambda t: put(t, "id", ANYONE, ANOTHER))
    assert "r: 1 row edited, 0 deleted" in command("--import", str(tmp_path / "state"))
