"""The examples that are more than a script: a notebook, and a job that is submitted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
ENVIRONMENT = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
LIMIT_S = 600


def test_every_example_is_run_here_or_beside():
    found = {
        p.relative_to(EXAMPLES).as_posix() for p in EXAMPLES.rglob("*") if p.is_file() and "__pycache__" not in p.parts
    }
    scripts = {"band_join.py", "kafka_to_delta.py", "three_streams.py"}
    assert found - scripts == {
        "notebook.ipynb",
        "submit.py",
    }


@pytest.mark.spark
def test_notebook(spark):
    names = {"__name__": "notebook"}
    shown = []
    for cell in json.loads((EXAMPLES / "notebook.ipynb").read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
            shown.append(cell["source"][-1])
    answer = names["running"].table().to_pylist()
    assert sorted(answer, key=lambda row: row["page"]) == [
        {"id": 10, "page": page, "total": 50.0} for page in ("/a", "/b")
    ]
    assert sorted(names["answer"].to_pylist(), key=lambda row: row["page"]) == sorted(answer, key=lambda r: r["page"])
    assert shown[-1] == "running.table().to_pandas()"


NOON_S = 1_767_268_800
ROWS = {
    "clicks": {"user": [7, 8], "page": ["/sale", "/home"], "ts": [0, 60]},
    "orders": {"id": [1, 2], "user": [7, 8], "total": [50.0, 9.0], "ts": [180, 3600]},
}


def make_data(folder: Path) -> None:
    for name, columns in ROWS.items():
        times = pa.array([(NOON_S + s) * 1_000_000 for s in columns["ts"]], pa.timestamp("us", tz="UTC"))
        (folder / name).mkdir(parents=True)
        pq.write_table(pa.table({**columns, "ts": times}), folder / name / "0.parquet")


def run(*command: object, cwd: Path) -> None:
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


PAID = [{"id": 1, "page": "/sale", "total": 50.0}]


@pytest.mark.spark
@pytest.mark.thorough
def test_submit(tmp_path):
    """Twice: the second start finds nothing new to do."""
    make_data(tmp_path)
    for _ in range(2):
        job = [EXAMPLES / "submit.py", tmp_path / "clicks", tmp_path / "orders", f"delta:{tmp_path / 'paid'}"]
        submit = [Path(sys.executable).with_name("spark-submit"), "--master", "local[2]"]
        run(*submit, *job, tmp_path / "checkpoint", "--trigger", "availableNow", cwd=tmp_path)
        assert DeltaTable(tmp_path / "paid").to_pyarrow_table().to_pylist() == PAID
