"""The bench of sites without hosts or Spark: its workload has the answer that it says, plans ship what they say, and the proxy counts what is sent."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import watersmeet as wm
from watersmeet.runtime.across import AcrossSites
from watersmeet.runtime.wires import WireReader
from watersmeet_lab.bench.sites.command import SEMI_THREE, SEMI_TWO, SIMPLE_THREE, SIMPLE_TWO
from watersmeet_lab.bench.sites.expect import expect_bytes
from watersmeet_lab.bench.sites.lines import CountingProxy
from watersmeet_lab.bench.sites.workload import Workload, feed

TWO = Workload(tuples=6_000, files=6, tuples_per_s=2_000, window_s=2.0)
THREE = Workload(streams=3, tuples=3_000, files=6, rarity=4, text_bytes=400, tuples_per_s=1_000, window_s=2.0)


def play(workload: Workload, plan: Any) -> tuple[Counter[Any], int, int]:
    """All sites in this process: results by ids, letters and bytes."""
    tables = {name: list(workload.tables(name)) for name in workload.names}
    streams = {n: wm.Stream(of[0], time="ts", site=workload.site_of[n]) for n, of in tables.items()}
    query = wm.sql(workload.query, streams, sites=wm.Sites(plan=plan)).plan
    across, reader, found = AcrossSites(query), WireReader(query, {}), Counter[Any]()
    for n in range(workload.files + 1 + 12):
        for name, of in tables.items():
            wires = reader.read({name: of[n]}) if n < len(of) else {}
            for table in across.play(workload.site_of[name], wires):
                found.update(zip(*(table.column(c).to_pylist() for c in sorted(table.column_names)), strict=True))
    shipped = across.shipped.values()
    return found, sum(letters for letters, _, _ in shipped), sum(size for _, _, size in shipped)


@pytest.mark.parametrize(
    ("workload", "simple", "chosen", "share"),
    [(TWO, SIMPLE_TWO["a to b"], SEMI_TWO, 0.1), (THREE, SIMPLE_THREE["a to b, b to c"], SEMI_THREE, 0.5)],
)
def test_semijoins_ship_a_part_of_what_simple_joins_do_and_what_they_say(
    workload: Workload, simple: Any, chosen: Any, share: float
) -> None:
    wanted = workload.compute_expected()
    assert wanted.total() > 20
    sizes = {}
    for name, plan in (("simple", simple), ("chosen", chosen)):
        found, letters, size = play(workload, plan)
        assert found.total() == wanted.total()
        sizes[name] = size
        assert 0.6 < size / (expect_bytes(workload, plan, 0)) < 1.5, (name, letters)
        assert expect_bytes(workload, plan, letters) > expect_bytes(workload, plan, 0) + letters * 100
    assert sizes["simple"] > workload.tuples * workload.text_bytes
    assert sizes["chosen"] < share * sizes["simple"]


def test_files_come_whole_and_in_order(tmp_path: Path) -> None:
    came = feed(TWO, tmp_path, None)
    for name in TWO.names:
        files = sorted((tmp_path / name).iterdir())
        assert len(files) == len(came[name]) == TWO.files + 1
        assert pq.read_table(tmp_path / name).num_rows == TWO.tuples + 1
        assert came[name] == sorted(came[name])


def test_the_proxy_counts_what_clients_send() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            client, _ = server.accept()
            with client:
                while more := client.recv(1000):
                    client.sendall(more * 2)

        threading.Thread(target=answer, daemon=True).start()
        with CountingProxy(server.getsockname()[1]) as proxy:
            with socket.create_connection(("127.0.0.1", proxy.port), 10) as own:
                own.sendall(b"x" * 700)
                got = 0
                while got < 1400:
                    got += len(own.recv(2000))
            assert proxy.sent == 700
