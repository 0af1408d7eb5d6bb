"""The command line: what it takes, and which module does it.

Spark is imported by the commands that need it. Commands that other distributions add are in the help and run as if they were written
here; `bench` and `reproduce` come with the laboratory.

Invariant: what is installed is looked up when a command is not one of ours, or when all are listed, and not before.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup
from typer.main import get_command

from watersmeet.cli.arguments import Pace, check_query, jars, late_sink, query_text, runtime_of, sink, sources, trigger
from watersmeet.cli.failure import report_errors
from watersmeet.errors import OptionError
from watersmeet.extensions import find_pieces, load, require_spark
from watersmeet.plan import options
from watersmeet.plan.model import Policy
from watersmeet.runtime.arrow_types import session_in

LABORATORY = ("bench", "reproduce")
"""Commands that are known to come with the laboratory."""


class WithAdded(TyperGroup):
    """The command's own words, then the added ones."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        return [*super().list_commands(ctx), *sorted(find_pieces("watersmeet.commands"))]

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Any:  # type: ignore[override]
        own = super().get_command(ctx, cmd_name)
        if own is not None or cmd_name not in {*LABORATORY, *find_pieces("watersmeet.commands")}:
            return own
        with report_errors():
            added = get_command(load("watersmeet.commands", cmd_name, f"watersmeet {cmd_name}"))
        added.name = cmd_name
        return added


app = typer.Typer(
    cls=WithAdded,
    help="Joins any number of data streams, on any predicate, over any window, on Spark.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

Query = Annotated[str | None, typer.Argument(help="The SQL, or @file.sql.", show_default=False)]
QueryFile = Annotated[Path | None, typer.Option(help="A file with the SQL.", show_default=False)]
Streams = Annotated[
    list[str] | None,
    typer.Option(
        "--stream",
        help="NAME=FOLDER[:parquet|csv|json] or NAME=kafka:TOPIC@HOST:PORT[:json|avro]. Repeat for each stream.",
        show_default=False,
    ),
]
Times = Annotated[
    list[str] | None,
    typer.Option("--time", help="NAME=COLUMN of event time. Default: ts, or the only timestamp.", show_default=False),
]
Latenesses = Annotated[
    list[str] | None,
    typer.Option("--lateness", help="NAME='10 seconds': the disorder to expect. Default: 0.", show_default=False),
]
Idles = Annotated[
    list[str] | None,
    typer.Option(
        "--idle", help="NAME='10 minutes': a silent stream's watermark follows the others.", show_default=False
    ),
]
Schemas = Annotated[
    list[str] | None,
    typer.Option(
        "--schema",
        help="NAME='id bigint, ts timestamp': needed for csv, json and topics; of Avro NAME=@FILE.avsc.",
        show_default=False,
    ),
]
Units = Annotated[int | None, typer.Option(help="Units that share the work; fixed for a checkpoint. Default: 8.")]
Kernel = Annotated[
    str,
    typer.Option(help="The join algorithm: auto, hw, sorted, nlw, mw, lca, ripple, xjoin, or 'gca(...)' around one."),
]
Routing = Annotated[
    str, typer.Option(help="auto, hash, hypercube, range, random, contrand, 'contrand(d, e)', matrix or pipeline.")
]
Driver = Annotated[
    Policy,
    typer.Option(help="Which stream's tuples go first inside a micro-batch."),
]
Runtime = Annotated[
    Literal["stream", "rounds"] | None,
    typer.Option(
        help="stream: state in Spark's state store. rounds: supersteps, state in files under the checkpoint. Default: stream, or what the sink needs.",
        show_default=False,
    ),
]
Jars = Annotated[
    str | None,
    typer.Option("--jars", help="A folder of jars, or jars by name: Kafka's connector for Spark.", show_default=False),
]
Shipping = Annotated[
    options.Shipping,
    typer.Option(help="semijoin (with --runtime rounds): keys travel first, payloads only for matches."),
]
Timezone = Annotated[str, typer.Option("--timezone", help="The session's time zone, such as Europe/Paris or +02:00.")]
Serve = Annotated[bool, typer.Option("--serve", help="Serve a live page on this machine, and metrics for Prometheus.")]
Port = Annotated[int, typer.Option(help="With --serve: its port. Default: one that is free.", show_default=False)]
Static = Annotated[bool, typer.Option("--static", help="Read what is there now, once: a backfill.")]


@app.command()
def demo(
    seconds: Annotated[float, typer.Option(help="How long the streams flow after the first micro-batch.", min=1)] = 40,
    seed: Annotated[int, typer.Option(help="Of the generated streams.")] = 1,
) -> None:
    """Watch three live streams join on a local Spark, each pair with its own window."""
    with report_errors():
        require_spark("watersmeet demo")
    from watersmeet.cli.demo import demo as show

    show(seconds, seed)


@app.command()
def run(
    query: Query = None,
    query_file: QueryFile = None,
    stream: Streams = None,
    time: Times = None,
    lateness: Latenesses = None,
    idle: Idles = None,
    schema: Schemas = None,
    sink_: Annotated[
        str, typer.Option("--sink", help="parquet:FOLDER, json:FOLDER, delta:PATH, kafka:TOPIC@HOST:PORT or console.")
    ] = "console",
    late_: Annotated[
        str | None,
        typer.Option(
            "--late", help="The same for late rows, with --runtime rounds. Default: dropped.", show_default=False
        ),
    ] = None,
    on_error: Annotated[
        options.OnError,
        typer.Option("--on-error", help="'set aside': rows that break an expression go to --late. raise: they end it."),
    ] = "raise",
    checkpoint: Annotated[
        Path | None, typer.Option(help="Default: _checkpoint in the sink's folder.", show_default=False)
    ] = None,
    trigger_: Annotated[
        str, typer.Option("--trigger", help="An interval, or available-now (also: once).")
    ] = "1 second",
    files_per_trigger: Annotated[
        int | None, typer.Option(help="At most so many new files of each stream per batch.", min=1)
    ] = None,
    rows_per_trigger: Annotated[
        int | None, typer.Option(help="At most so many new records of each topic per batch.", min=1)
    ] = None,
    jars_: Jars = None,
    units: Units = None,
    kernel: Kernel = "auto",
    routing: Routing = "auto",
    driver: Driver = "auto",
    runtime: Runtime = None,
    shipping: Shipping = "auto",
    timezone: Timezone = "UTC",
    static: Static = False,
    serve: Serve = False,
    port: Port = 0,
    keep: Annotated[
        int,
        typer.Option(
            help="With --runtime rounds: for how many batches the state stays, to go back to.", min=2, max=100
        ),
    ] = 2,
    upgrade: Annotated[
        bool,
        typer.Option("--upgrade", help="With --runtime rounds: hand the checkpoint of another query over to this one."),
    ] = False,
) -> None:
    """Join folders of files and topics of Kafka, as streams or (--static) as they are now."""
    with report_errors():
        require_spark("watersmeet run")
        text = query_text(query, query_file)
        found = sources(stream, time, lateness, idle, schema, streaming=not static)
        to, pace = sink(sink_), Pace(trigger(trigger_), files_per_trigger, rows_per_trigger)
        on = runtime_of(runtime, to)
        late = None if late_ is None else late_sink(late_, to, rounds=on == "rounds" and not static)
        if on_error != "raise" and late is None:
            raise OptionError("--on-error 'set aside': name the sink of what is set aside, such as --late json:FOLDER")
        if upgrade and (on != "rounds" or static):
            raise OptionError(
                "--upgrade needs --runtime rounds: of dataframe() Spark keeps the state, and only the same windows, keys and columns go on"
            )
        if keep != 2 and (on != "rounds" or static):
            raise OptionError(f"--keep {keep} needs --runtime rounds: of dataframe() Spark keeps the state")
        choices, with_jars = _options(units, kernel, routing, driver, on, shipping), jars(jars_)
        choices["on_error"] = on_error
        zone = check_query(text, found, timezone).timezone
    from watersmeet.cli import run as runs

    if static:
        runs.backfill(text, found, choices, to, zone)
    else:
        how = runs.How(with_jars, port if serve else None, upgrade, keep)
        runs.stream(text, found, choices, to, late, checkpoint, pace, zone, how)


@app.command()
def compact(
    where: Annotated[str, typer.Argument(help="A folder of results, or delta:PATH.", show_default=False)],
    target: Annotated[str, typer.Option(help="How large files may become.")] = "128 MB",
) -> None:
    """Merge small files of a folder of results, whose query is stopped, or of a Delta table."""
    with report_errors():
        require_spark("watersmeet compact")
        from watersmeet.cli.compact import compact as merge

        merge(where, target)


@app.command()
def state(
    checkpoint: Annotated[
        str, typer.Argument(help="A folder that start(checkpoint=...) was given.", show_default=False)
    ],
    batch: Annotated[
        int | None, typer.Option(help="The state after an earlier batch. Default: the latest.", show_default=False)
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare every file; exit code 3 if one is damaged.")
    ] = False,
    export: Annotated[
        Path | None, typer.Option(help="Write the rows to a new folder, as Parquet.", show_default=False)
    ] = None,
    import_: Annotated[
        Path | None, typer.Option("--import", help="Take an edited export over.", show_default=False)
    ] = None,
    restore: Annotated[
        int | None, typer.Option(help="Set the checkpoint back to this batch; needs --sink.", show_default=False)
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Take the latest upgrade back; needs --sink.")] = False,
    sink_: Annotated[
        str | None,
        typer.Option("--sink", help="With --restore and --undo: the query's sink, or function.", show_default=False),
    ] = None,
    late: Annotated[
        str | None, typer.Option(help="With --restore and --undo: its sink of late rows.", show_default=False)
    ] = None,
) -> None:
    """Show what a checkpoint keeps; verify, export, import or restore it, or undo an upgrade. The query must be stopped for the last three."""
    from watersmeet.cli import state as states

    with report_errors():
        choices = {"--verify": verify or None, "--export": export, "--import": import_, "--restore": restore, "--undo": undo or None}  # fmt: skip
        wanted = [name for name, given in choices.items() if given is not None]
        if len(wanted) > 1:
            raise OptionError(f"{' and '.join(wanted)} are two things to do: give one of them")
        if verify:
            states.check(checkpoint)
        elif export is not None:
            states.export(checkpoint, export, batch)
        elif import_ is not None:
            states.take_over(checkpoint, import_)
        elif restore is not None:
            states.set_back(checkpoint, restore, sink_, late)
        elif undo:
            states.take_back(checkpoint, sink_, late)
        else:
            states.show(checkpoint, batch)


@app.command()
def watch(
    checkpoint: Annotated[
        str, typer.Argument(help="The checkpoint of a query of start() that runs elsewhere.", show_default=False)
    ],
    serve: Serve = False,
    port: Port = 0,
    seconds: Annotated[
        float | None, typer.Option(help="Stop after so long. Default: on Ctrl-C.", show_default=False)
    ] = None,
) -> None:
    """Follow a query that another process runs with start(), batch by batch. Nothing is changed."""
    with report_errors():
        from watersmeet.cli.follow import follow

        follow(checkpoint, port if serve else None, seconds)


@app.command()
def subscribe(
    stream: Streams = None,
    time: Times = None,
    lateness: Latenesses = None,
    idle: Idles = None,
    schema: Schemas = None,
    sink_: Annotated[str, typer.Option("--sink", help="parquet:FOLDER for the answers.")] = "parquet:answers",
    checkpoint: Annotated[
        Path | None, typer.Option(help="Default: _checkpoint in the sink's folder.", show_default=False)
    ] = None,
    trigger_: Annotated[
        str, typer.Option("--trigger", help="An interval, or available-now (also: once).")
    ] = "1 second",
    files_per_trigger: Annotated[
        int | None, typer.Option(help="At most so many new files of each stream per batch.", min=1)
    ] = None,
    rows_per_trigger: Annotated[
        int | None, typer.Option(help="At most so many new records of each topic per batch.", min=1)
    ] = None,
    jars_: Jars = None,
    units: Annotated[
        int | None, typer.Option(help="Units that share the work; may be another number after a restart.")
    ] = None,
    engine: Annotated[Literal["auto", "shared", "rjoin"], typer.Option(help="What answers.")] = "auto",
    timezone: Timezone = "UTC",
    port: Annotated[int, typer.Option(help="Of the page and the API. Default: one that is free.")] = 0,
    token_file: Annotated[
        Path | None, typer.Option(help="Write the token here, for scripts.", show_default=False)
    ] = None,
) -> None:
    """Answer registered queries, which come and go over an HTTP API on this machine, with a live page."""
    with report_errors():
        require_spark("watersmeet subscribe")
        found = sources(stream, time, lateness, idle, schema)
        to, pace = sink(sink_), Pace(trigger(trigger_), files_per_trigger, rows_per_trigger)
        with_jars, zone = jars(jars_), session_in(timezone).timezone
    from watersmeet.cli.subscribe import subscribe as run_registry

    given = {"units": units, "engine": engine, "port": port, "token_file": token_file}
    run_registry(found, to, checkpoint, pace, zone, jars=with_jars, **given)  # type: ignore[arg-type]


@app.command()
def explain(
    query: Query = None,
    query_file: QueryFile = None,
    stream: Streams = None,
    time: Times = None,
    lateness: Latenesses = None,
    idle: Idles = None,
    schema: Schemas = None,
    units: Units = None,
    kernel: Kernel = "auto",
    routing: Routing = "auto",
    driver: Driver = "auto",
    runtime: Runtime = None,
    shipping: Shipping = "auto",
    timezone: Timezone = "UTC",
    static: Static = False,
    jars_: Jars = None,
    full: Annotated[
        bool, typer.Option("--full", help="Also streams, conditions, routing, kernel, orders, shipping.")
    ] = False,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="Of a query of --runtime rounds: what of its state this one keeps.", show_default=False),
    ] = None,
) -> None:
    """Print the plan of a query: windows, state, warnings, fingerprint. Nothing runs."""
    with report_errors():
        require_spark("watersmeet explain")
        text = query_text(query, query_file)
        found = sources(stream, time, lateness, idle, schema, streaming=not static)
        choices, with_jars = _options(units, kernel, routing, driver, runtime or "stream", shipping), jars(jars_)
        zone = check_query(text, found, timezone).timezone
    from watersmeet.cli import run as runs

    runs.explain(text, found, choices, zone, streaming=not static, full=full, jars=with_jars, checkpoint=checkpoint)


def _options(units: int | None, kernel: str, routing: str, driver: str, runtime: str, shipping: str) -> dict[str, Any]:
    options.ForcedKernel.of(kernel)
    given = {"kernel": kernel, "routing": routing, "driver": driver, "runtime": runtime, "shipping": shipping}
    return {"units": "auto" if units is None else units, **given}
