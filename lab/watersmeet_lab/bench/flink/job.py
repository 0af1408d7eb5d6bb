"""One trial of Flink: run by Flink's own Python, which has nothing of ours. `python job.py SPEC RESULT`.

Streams are the benchmark's Parquet files, in the order of their names, which is that of time: two readers of a stream take two files, then the next two, and its watermark is the slower
one's. (Flink's source of files deals them out in any order. Of 300 files nearly all rows were late then; so it is a chain of sources, of which each has a file for every reader.) Flink's time attributes have milliseconds; so the interval of the join is wide by the part of a millisecond, and a condition on microseconds decides.

No stream is read more than a window and a file of each reader ahead of the slowest one: Flink's watermark alignment. Without it the third stream, which has the least work behind it, is read
far ahead of the result of the first two, and its rows fill the heap.

Files are read without end if results go nowhere: then all that was read and joined can be asked for while the job runs, which is cancelled after that. With files as sink the input
ends, and so does the job; files are complete then.

Invariant: `progress` has the time at which the sources had read so many rows, as Flink's REST interface tells it.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

PERIOD_S = 0.25
ALIGN_MS = 20
"""Sources compare their watermarks so often."""
MARKS = """
public class Marks extends org.apache.flink.table.runtime.generated.WatermarkGenerator {
  public Marks(Object[] references) {}
  public long extractTimestamp(org.apache.flink.table.data.RowData row) { return row.getLong(1) / 1000L; }
  public Long currentWatermark(org.apache.flink.table.data.RowData row) { return Long.valueOf(row.getLong(1) / 1000L - 1L); }
}
"""
"""The watermark of rows in order of `ts`, their second column. Python's own assigners of time would run every row through Python."""
QUIET_S = 5.0
"""After the last row was read and the last result counted, the job may still be joining: so long nothing must have come."""


def main(spec: Path, result: Path) -> None:
    """Run what the file `spec` describes, and write what was seen to the file `result`."""
    trial = json.loads(spec.read_text())
    tables = open_tables(trial)
    for alias in trial["aliases"]:
        add_stream(tables, alias, trial)
    tables["env"].execute_sql(sink_sql(trial))
    began = time.monotonic()
    job = tables["env"].execute_sql(f"INSERT INTO results {join_sql(trial)}").get_job_client()
    seen = watch(trial, job, began)
    result.write_text(json.dumps(seen))


def open_tables(trial: Any) -> dict[str, Any]:
    """An environment with a cluster of its own in this process' JVM."""
    streams, tables, common = (import_module(f"pyflink.{name}") for name in ("datastream", "table", "common"))
    settings = common.Configuration()
    for name, value in trial["settings"].items():
        settings.set_string(name, value)
    env = streams.StreamExecutionEnvironment.get_execution_environment(settings)
    env.set_parallelism(trial["cores"])
    return {"streams": env, "env": tables.StreamTableEnvironment.create(env)}


def add_stream(opened: dict[str, Any], alias: str, trial: Any) -> None:
    """A stream's files as a table `a`, `b` or `c`: key, us (microseconds), payload, and its time in milliseconds."""
    tables, common = import_module("pyflink.table"), import_module("pyflink.common")
    sources = import_module("pyflink.datastream.connectors.file_system")
    formats = import_module("pyflink.datastream.formats.parquet")
    kinds = tables.DataTypes
    row = kinds.ROW(
        [kinds.FIELD("key", kinds.BIGINT()), kinds.FIELD("ts", kinds.BIGINT()), kinds.FIELD("payload", kinds.STRING())]
    )
    paths = sorted(str(path) for path in (Path(trial["data"]) / alias).glob("*.parquet"))
    groups = [paths[begin : begin + trial["cores"]] for begin in range(0, len(paths), trial["cores"])]
    builders = [
        sources.FileSource.for_bulk_file_format(formats.ParquetColumnarRowInputFormat(row), *group) for group in groups
    ]
    if trial["sink"] == "noop":
        builders[-1] = builders[-1].monitor_continuously(common.Duration.of_hours(1))
    hybrid = import_module("pyflink.datastream.connectors.hybrid_source").HybridSource
    first, *others = [builder.build() for builder in builders]
    chain = hybrid.builder(first)
    for other in others:
        chain = chain.add_source(other)
    # A chain does not say what its rows are; its first source does.
    rows = SimpleNamespace(get_java_type_info=first.get_java_function().getProducedType)
    read = opened["streams"].from_source(chain.build(), align_streams(common, trial), f"read {alias}", rows)
    schema = (
        tables.Schema.new_builder()
        .column("key", kinds.BIGINT())
        .column("ts", kinds.BIGINT())
        .column("payload", kinds.STRING())
        .column_by_expression("time", "TO_TIMESTAMP_LTZ(ts / 1000, 3)")
        .watermark("time", "`time`")
        .build()
    )
    opened["env"].create_temporary_view(alias, opened["env"].from_data_stream(read, schema))


def align_streams(common: Any, trial: Any) -> Any:
    """The strategy under which sources wait for the one that is furthest behind."""
    gateway = import_module("pyflink.java_gateway").get_gateway()
    flink = gateway.jvm.org.apache.flink
    generated = flink.table.runtime.generated
    marks = generated.GeneratedWatermarkGenerator("Marks", MARKS, gateway.new_array(gateway.jvm.Object, 0))
    supplier = generated.GeneratedWatermarkGeneratorSupplier(
        marks, flink.table.watermark.WatermarkParams.builder().build()
    )
    strategy = common.WatermarkStrategy(flink.api.common.eventtime.WatermarkStrategy.forGenerator(supplier))
    drift, often = common.Duration.of_millis(trial["drift_us"] // 1000), common.Duration.of_millis(ALIGN_MS)
    return strategy.with_watermark_alignment("streams", drift, often)


def join_sql(trial: Any) -> str:
    """The join: of three streams, the result of the first two goes on under a's time."""
    first, *others = trial["aliases"]
    window = trial["window_us"]
    ms = window // 1000 + 1
    where, selected = [], [f"{first}.key", f"{first}.ts", f"{first}.payload"]
    for number, alias in enumerate(others):
        bound = f"INTERVAL '{ms / 1000:.3f}' SECOND({len(str(ms // 1000))}, 3)"
        where.append(f"{first}.key = {alias}.key")
        where.append(f"{alias}.`time` BETWEEN {first}.`time` - {bound} AND {first}.`time` + {bound}")
        where += [f"ABS({alias}.ts - {other}.ts) <= {window}" for other in (first, *others[:number])]
        selected += [f"{alias}.ts", f"{alias}.payload"]
    return f"SELECT {', '.join(selected)} FROM {', '.join(trial['aliases'])} WHERE {' AND '.join(where)}"


def sink_sql(trial: Any) -> str:
    first, *others = trial["aliases"]
    columns = ["key BIGINT", f"{first}_ts BIGINT", f"{first}_payload STRING"]
    columns += [column for x in others for column in (f"{x}_ts BIGINT", f"{x}_payload STRING")]
    how = "'connector' = 'blackhole'"
    if trial["sink"] == "parquet":
        how = f"'connector' = 'filesystem', 'path' = '{trial['rows']}', 'format' = 'parquet', 'parquet.compression' = 'SNAPPY'"
    return f"CREATE TEMPORARY TABLE results ({', '.join(f'`{c.split()[0]}` {c.split()[1]}' for c in columns)}) WITH ({how})"


def watch(trial: Any, job: Any, began: float) -> dict[str, Any]:
    """Ask how far the job is until it has ended, or has nothing left to do and is cancelled."""
    base = f"http://127.0.0.1:{trial['port']}/jobs/{job.get_job_id()}"
    ended = job.get_job_execution_result()
    progress: list[tuple[float, int]] = []
    results, quiet_since = 0, 0.0
    while not ended.done():
        time.sleep(PERIOD_S)
        try:
            vertices = ask(base)["vertices"]
            read = sum(v["metrics"]["write-records"] for v in vertices if "read " in v["name"])
            made = count_results(base, vertices) if read >= trial["total"] else 0
        except (OSError, KeyError, ValueError):  # it begins, or has just ended
            continue
        progress.append((time.monotonic() - began, read))
        if made != results or read < trial["total"]:
            results, quiet_since = made, time.monotonic()
        if trial["sink"] == "noop" and time.monotonic() - quiet_since > QUIET_S:
            job.cancel().result()
            break
    else:
        ended.result()  # an error of the job is raised here
    return {"progress": progress, "count": results, "wall_s": time.monotonic() - began}


def count_results(base: str, vertices: Any) -> int:
    """What the sink's operators have got; they are chained with the join, so the vertex' own figures tell of its input."""
    total = 0
    for vertex in vertices:
        figures = f"{base}/vertices/{vertex['id']}/subtasks/metrics"
        names = [m["id"] for m in ask(figures) if "results" in m["id"] and m["id"].endswith(".numRecordsIn")]
        for name in names[:1]:
            total += int(ask(f"{figures}?get={quote(name)}&agg=sum")[0]["sum"])
    return total


def ask(address: str) -> Any:
    with urllib.request.urlopen(address, timeout=10) as answer:
        return json.loads(answer.read())


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
