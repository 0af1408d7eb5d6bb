"""The demo's data and its check, without Spark: the local runtime joins what the shop writes."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import watersmeet as wm
from watersmeet.cli.demo import QUERY, verdict
from watersmeet.cli.shop import LATENESS, TIMES, Shop

FILES = 24


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """Twelve seconds: two hours of event time; from the eighth file on, rows are sent late."""
    shop = Shop(tmp_path_factory.mktemp("shop"), seed=3)
    for number in range(FILES):
        if number >= 8:
            shop.watermarks({name: watermark(shop, name) for name in TIMES})
        shop.step()
    return shop


def files(shop: Shop, name: str) -> list[pa.Table]:
    return [pq.read_table(file) for file in sorted((shop.folder / name).glob("*.parquet"))]


def watermark(shop: Shop, name: str):
    highest = pc.max(pa.concat_tables(files(shop, name))[TIMES[name]]).as_py()
    return highest - timedelta(minutes=30)


@pytest.mark.parametrize("name", TIMES)
def test_rows_come_out_of_order_but_in_time_unless_sent_late(shop, name):
    assert LATENESS == "30 minutes"
    highest, disorder, late = None, timedelta(0), 0
    for table in files(shop, name):
        for ts, sent_late in zip(table[TIMES[name]].to_pylist(), table["sent_late"].to_pylist(), strict=True):
            if sent_late:
                late += 1
                assert ts < highest - timedelta(minutes=30)
            elif highest is not None:
                disorder = max(disorder, highest - ts)
        seen = table[TIMES[name]].to_pylist()
        highest = max([highest, *seen] if highest else seen, default=None)
    assert timedelta(minutes=1) < disorder < timedelta(minutes=20)
    assert late == shop.sent_late[name] > 0


def joined(shop: Shop) -> pa.Table:
    streams = {
        name: wm.Stream(
            pa.concat_tables(t.filter(pc.invert(t["sent_late"])) for t in files(shop, name)),
            time=time,
            lateness=LATENESS,
        )
        for name, time in TIMES.items()
    }
    return wm.local.run(QUERY, streams)


def test_the_check_agrees_with_the_engine_and_sees_any_difference(shop, tmp_path):
    results = joined(shop)
    assert results.num_rows > 100
    pq.write_table(results, tmp_path / "all.parquet")
    right = verdict(shop.folder, tmp_path)
    assert right.is_right
    assert str(right) == f"{results.num_rows:,} results, equal to DuckDB's {results.num_rows:,}"
    pq.write_table(pa.concat_tables([results.slice(1), results.slice(5, 1)]), tmp_path / "all.parquet")
    wrong = verdict(shop.folder, tmp_path)
    assert (wrong.missing, wrong.surplus, wrong.is_right) == (1, 1, False)


def test_no_results_at_all_are_missing(shop, tmp_path):
    assert verdict(shop.folder, tmp_path).missing > 100


def test_the_thread_writes_and_stops(tmp_path):
    shop = Shop(tmp_path, seed=1)
    shop.open()
    shop.close()
    assert len(list((tmp_path / "clicks").glob("*.parquet"))) == shop.files
    assert not list((tmp_path / "clicks").glob(".*"))
