"""TPC-H streams of the evaluation, made with tpchgen and kept in a folder.

The streams are a prefix of a large TPC-H database: all suppliers of scale factor `scale`, and the first of `parts` parts
of its lineitems. So the two sides have about the same volume, as section 6.1 asks, and still every lineitem has its
supplier. Tables are projected, and selections on one table done, before they are fed:

    q5_supplier   region-nation-supplier, Asia      q5_lineitem   all
    q7_supplier   nation-supplier, two nations      q7_lineitem   shipped in 1995 or 1996
    band_l1       lineitem, by truck, over 48       band_l2       lineitem, no instruction

Invariant: a folder is a pure function of (scale, parts, tpchgen's version); a folder with a `_done` file is complete.
Departs from the paper: section 6.1 does not name the tables of "the most expensive join operations" of Q5 and Q7; these are
the ones of the system it compares with (Elseidy et al. 2014: region-nation-supplier and supplier-nation with lineitem).
"""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
import tempfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import duckdb

from watersmeet.errors import OptionError

_LINEITEM = (
    "l_suppkey AS suppkey, l_orderkey AS orderkey, l_extendedprice::DOUBLE AS price, l_discount::DOUBLE AS discount"
)
_SUPPLIER = "SELECT s_suppkey AS suppkey, s_nationkey AS nationkey, n_name AS nation FROM supplier JOIN nation ON s_nationkey = n_nationkey"
_ENOUGH = "LIMIT (SELECT count(*) FROM supplier)"
STREAMS = {
    "q5_supplier": f"{_SUPPLIER} JOIN region ON n_regionkey = r_regionkey WHERE r_name = 'ASIA' ORDER BY suppkey",
    "q5_lineitem": f"SELECT {_LINEITEM} FROM lineitem {_ENOUGH}",
    "q7_supplier": f"{_SUPPLIER} WHERE n_name IN ('FRANCE', 'GERMANY') ORDER BY suppkey",
    "q7_lineitem": f"SELECT {_LINEITEM}, year(l_shipdate) AS year FROM lineitem"
    f" WHERE l_shipdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31' {_ENOUGH}",
    "band_l1": "SELECT l_orderkey AS orderkey, l_linenumber AS line, l_shipmode AS shipmode, l_quantity::DOUBLE AS quantity, n_name AS nation"
    " FROM lineitem JOIN supplier ON l_suppkey = s_suppkey JOIN nation ON s_nationkey = n_nationkey"
    " WHERE l_shipmode = 'TRUCK' AND l_quantity > 48 ORDER BY orderkey, line",
    "band_l2": "SELECT l_orderkey AS orderkey, l_linenumber AS line, l_shipinstruct AS shipinstruct FROM lineitem"
    f" WHERE l_shipinstruct = 'NONE' {_ENOUGH}",
}


@dataclass(frozen=True)
class Dataset:
    """Which part of which TPC-H database."""

    scale: float
    parts: int

    @property
    def name(self) -> str:
        """The folder's name.

        >>> Dataset(10, 100).name
        'tpch-sf10-of100'
        """
        return f"tpch-sf{self.scale:g}-of{self.parts}"


def generator() -> Path | None:
    """The program of the package tpchgen-cli, if it is installed."""
    beside = Path(sysconfig.get_path("scripts")) / "tpchgen-cli"
    found = str(beside) if beside.exists() else shutil.which("tpchgen-cli")
    return Path(found) if found else None


def generator_version() -> str | None:
    """The version of tpchgen-cli."""
    try:
        return version("tpchgen-cli")
    except PackageNotFoundError:
        return None


def generate(dataset: Dataset, root: Path) -> Path:
    """The folder with all streams as parquet, made if it is not there."""
    folder = root / dataset.name
    if not (folder / "_done").exists():
        program = generator()
        if program is None:
            raise OptionError("TPC-H data come from the package tpchgen-cli: pip install tpchgen-cli")
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="raw-", dir=folder) as raw:
            _tables(program, dataset, Path(raw))
            _project(Path(raw), folder)
        (folder / "_done").touch()
    return folder


def _tables(program: Path, dataset: Dataset, raw: Path) -> None:
    base = [str(program), "parquet", "-s", f"{dataset.scale:g}", "-o", str(raw), "-q"]
    small, large = ["-T", "region,nation,supplier"], ["-T", "lineitem", "-p", str(dataset.parts), "--part", "1"]
    for tables in (small, large):
        done = subprocess.run([*base, *tables], capture_output=True, text=True)
        if done.returncode:
            raise OptionError(f"tpchgen-cli failed for --scale {dataset.scale:g}: {done.stderr.strip()[-500:]}")


def _project(raw: Path, folder: Path) -> None:
    with duckdb.connect() as con:
        con.execute("SET preserve_insertion_order = true")
        for table in ("region", "nation", "supplier", "lineitem"):
            path = raw / f"{table}.parquet"
            where = path if path.exists() else raw / table / "*.parquet"
            con.execute(f"CREATE VIEW {table} AS SELECT * FROM {_quote(where)}")
        for name, query in STREAMS.items():
            con.execute(f"COPY ({query}) TO {_quote(folder / f'{name}.parquet')} (FORMAT parquet)")


def _quote(path: Path) -> str:
    text = str(path).replace("'", "''")
    return f"'{text}'"
