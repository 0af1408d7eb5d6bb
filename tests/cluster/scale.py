"""`python -m tests.cluster.scale [JSON]`: what a micro-batch of `start()` costs on 1 to 4 hosts, each with one core, as `watersmeet bench scale` measures it on one machine.

All hosts share this machine's cores, so more of them do not make a batch faster than these allow: what is measured is what a further host costs.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

from rich.console import Console

from tests.cluster.bench import EXECUTORS
from tests.cluster.standalone import ROOT, Standalone
from watersmeet_lab.bench.scale.command import show
from watersmeet_lab.bench.scale.points import Cost, Point, read_costs
from watersmeet_lab.machines.hosts import Hosts, find_missing

MODULE = "watersmeet_lab.bench.scale.points"
HOSTS = ("w1", "w2", "w3", "w4")
POINTS = (*(Point(rows, 4, 100, 10, 10) for rows in (1_000, 20_000, 100_000)), Point(20_000, 16, 100, 10, 10))


def measure(cluster: Standalone) -> list[Cost]:
    """The points on the workers that the cluster has now."""
    with tempfile.TemporaryDirectory(dir=cluster.shared) as name:
        spec, result = Path(name) / "spec.json", Path(name) / "result.json"
        conf = cluster.settings() | EXECUTORS | {"spark.executor.memory": "1g"}
        hosts = len(cluster.workers)
        points = [asdict(replace(p, units=max(p.units, hosts))) for p in POINTS]
        spec.write_text(json.dumps({"points": points, "cores": hosts, "conf": conf}))
        driver, log = cluster.start_driver(MODULE, spec, result)
        if driver.wait() != 0:
            raise SystemExit(log.read_text(errors="replace")[-4000:])
        return read_costs(json.loads(result.read_text()))


def main(to: str | None = None) -> None:
    why = find_missing()
    if why is not None:
        raise SystemExit(why)
    costs: list[Cost] = []
    with tempfile.TemporaryDirectory(prefix="watersmeet-cluster-", dir="/var/tmp") as scratch:
        root = Path(scratch)
        with Hosts(list(HOSTS), root / "hosts", [ROOT, Path(sys.prefix)]) as hosts:
            (root / "shared").mkdir()
            cluster = Standalone(hosts, root / "shared", memory="2g")
            for host in HOSTS:
                cluster.add_worker(host)
                costs += measure(cluster)
    if to is not None:
        Path(to).write_text(json.dumps([asdict(cost) for cost in costs]))
    show(Console(), costs, [])


if __name__ == "__main__":
    main(*sys.argv[1:])
