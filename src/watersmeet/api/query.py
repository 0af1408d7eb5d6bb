"""The query object behind `wm.sql` and `wm.join`: bind early, explain, run on Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from watersmeet.errors import OptionError
from watersmeet.plan.build import Options
from watersmeet.plan.explain import Detail, explain
from watersmeet.plan.explain_short import show_windows
from watersmeet.plan.model import Plan
from watersmeet.query.join import Join
from watersmeet.query.scaling import Scaling
from watersmeet.query.session import Session
from watersmeet.query.stream import Stream, StreamSpec
from watersmeet.runtime import sources

if TYPE_CHECKING:
    from watersmeet.runtime.rounds.handle import Handle


class Query:
    """A bound query over streams."""

    def __init__(
        self,
        bind: Callable[[Mapping[str, StreamSpec], Session], Join],
        streams: Mapping[str, Stream],
        options: Options,
    ) -> None:
        self._streams, self._options = dict(streams), options
        specs = {name: sources.spec(name, stream) for name, stream in streams.items()}
        self._join = bind(specs, sources.session(streams))
        self._used = {i.stream: self._streams[i.stream] for i in self._join.inputs}
        sources.check(self._join, self._used)

    def __repr__(self) -> str:
        return "\n".join(f"{title:<9}{text}" for title, text in self._shown())

    def _shown(self) -> Iterator[tuple[str, str]]:
        yield "Query", " ".join(self._join.text.split())
        yield "streams", ", ".join(f"{name} {stream.show()}" for name, stream in self._used.items())
        yield "windows", show_windows(self._join.windows)
        yield "result", ", ".join(o.name for o in self._join.results)

    @cached_property
    def plan(self) -> Plan:
        """The plan that `dataframe` runs."""
        return sources.plan(self._join, self._used, self._options)

    def explain(self, detail: Detail = "short") -> str:
        """The plan as text: windows, state, warnings and fingerprint; "full": also routing, kernel, orders, conditions, shipping."""
        return explain(self.plan, sources.runtime_name(self._used, self._options.runtime, self.plan), detail)

    def dataframe(self) -> Any:
        """The result as a Spark DataFrame: streaming if the streams are, static if they are."""
        if self._options.runtime == "rounds" or self.plan.shipping == "semijoin":
            why = "runtime='rounds'" if self._options.runtime == "rounds" else "shipping='semijoin' needs rounds"
            raise OptionError(f"{why}: a DataFrame cannot run rounds; use start(sink=..., checkpoint=...)")
        if self.plan.sites is not None:
            raise OptionError(
                f"streams at sites ({', '.join(self.plan.site_names)}) are joined by messages between them, in rounds: "
                "a DataFrame cannot run those; use start(sink=..., checkpoint=...)"
            )
        return sources.dataframe(self.plan, self._used)

    def start(
        self,
        *,
        sink: Any,
        checkpoint: Any,
        trigger: Any = None,
        name: str | None = None,
        scaling: Scaling | None = None,
    ) -> Handle:
        """Run on the rounds runtime, exactly once; returns a handle.

        `sink` is a folder for Parquet files, "console", "memory", "noop" or a function (rows, batch_id); `checkpoint` a
        folder of this query's own; `trigger` a duration, "availableNow" or Spark's keywords as a dict (default: as fast
        as batches come); `name` Spark's query name; `scaling` lets the units of a biclique grow and shrink with the load.
        """
        if self._options.runtime == "stream":
            raise OptionError("runtime='stream': start() is the rounds runtime; use dataframe(), or runtime='rounds'")
        if scaling is not None and not isinstance(scaling, Scaling):
            raise OptionError(f"scaling={scaling!r}: give wm.Scaling(unit_bytes=...)")
        return sources.start(
            self.plan, self._used, sink_=sink, checkpoint=checkpoint, trigger=trigger, name=name, scaling=scaling
        )
