"""What a site knows between two batches.

A plan holds for heads of a span of time, an *epoch*. Two epochs are under way at once while heads of the older one are: each has channels, copies and
questions of its own, and both use the same windows.

Invariant: the state is JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import asdict, dataclass, field, is_dataclass
from typing import Any, TypeVar

from watersmeet.dataflow.clock import NEVER
from watersmeet.kernels.instants import LAST
from watersmeet.sites.frontiers import Told
from watersmeet.sites.plan_change.agree import Agreement
from watersmeet.sites.plan_change.choice import Choice
from watersmeet.sites.plan_change.survey import Survey
from watersmeet.sites.planning.placed import Sequences


@dataclass
class Epoch:
    """A plan, and the heads that it holds for; JSON."""

    number: int = 0
    sequences: Sequences = field(default_factory=dict)
    """None: those of the query's first plan."""
    since: int = NEVER
    until: int = LAST
    expects: dict[str, float] = field(default_factory=dict)
    """By 'sender>receiver' the bytes per second that were expected when the plan was chosen."""
    reached: dict[str, int] = field(default_factory=dict)
    """By stream how far the site knew it to be when the plan was last played."""
    told: Told = field(default_factory=Told)
    named: dict[str, int] = field(default_factory=dict)
    """By site the first letter to it that has named the plan; letters name it until that one has been taken."""

    @property
    def prefix(self) -> str:
        return f"{self.number}/"


@dataclass
class SiteState:
    """What a site knows after a batch; JSON."""

    own: dict[str, int] = field(default_factory=dict)
    """By alias how far the site's own streams are."""
    streams: dict[str, int] = field(default_factory=dict)
    """The same of other sites' streams, as it was told."""
    epochs: list[Epoch] = field(default_factory=lambda: [Epoch()])
    """Those under way, oldest first."""
    results: dict[str, int] = field(default_factory=dict)
    """By other site how far its results are, where all results come together."""
    taken: dict[str, int] = field(default_factory=dict)
    """By site the number of its last letter that was taken."""
    sent: dict[str, int] = field(default_factory=dict)
    """By site the number of the last letter to it."""
    batches: dict[str, list[int]] = field(default_factory=dict)
    """By site the batches whose letters it has not taken yet, oldest first; the last is that of letter `sent`."""
    said: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By site what the last letter said."""
    cuts: dict[str, int] = field(default_factory=dict)
    """By name the time before which what is kept is dead."""
    fates: dict[str, list[int]] = field(default_factory=dict)
    """By preserved alias of the site: the span of time of the tuples whose waits have ended with the batch."""
    ended: dict[str, list[Any]] = field(default_factory=dict)
    """By window of rows: the name of its tuples' ends, the time of the first head that may come, and what else goes with a tuple."""
    is_held: bool = True
    """Whether tuples have only been measured so far: under `auto` nothing sets out before the first plan that follows from what was measured."""
    agreement: Agreement = field(default_factory=Agreement)
    newest: int = 0
    """The number of the newest epoch that it knows of."""
    survey: Survey = field(default_factory=Survey)
    choice: Choice = field(default_factory=Choice)

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> SiteState:
        if not raw:
            return cls()
        epochs = [Epoch(**{**e, "told": Told(**e["told"])}) for e in raw["epochs"]]
        own: dict[str, Any] = {"agreement": Agreement.of(raw["agreement"]), "survey": Survey(), "choice": Choice()}
        if "wanted" in raw["survey"]:  # else of an earlier form: streams are measured anew
            own |= {"survey": Survey.of(raw["survey"]), "choice": Choice(**raw["choice"])}
        return cls(**{"is_held": False, **raw, "epochs": epochs, **own})

    def begin(self, number: int, sequences: Sequences, since: int, expects: dict[str, float]) -> None:
        """A plan holds for heads from a time on; the one before, for those before it. A plan that would hold for none is forgotten."""
        if number > self.newest:
            self.epochs = [epoch for epoch in self.epochs if epoch.since < since]
            if self.epochs:
                self.epochs[-1].until = since
            self.epochs.append(Epoch(number, sequences, since, expects=expects))
            self.newest, self.is_held = number, False

    @property
    def furthest(self) -> int:
        """What other sites may have been told of this one's streams."""
        return max(self.own.values(), default=NEVER)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


T = TypeVar("T")
_LEAVES = frozenset({int, float, str, bool, type(None)})


def clone(state: T) -> T:
    """The same JSON, apart: what happens to one does not happen to the other. Lists in lists, such as pairs of a sketch, and what a choice remembers are never changed, so both have them."""
    if isinstance(state, Choice):
        return copy(state)
    if isinstance(state, dict):
        return {n: v if type(v) in _LEAVES else clone(v) for n, v in state.items()}  # type: ignore[return-value]
    if isinstance(state, list):
        return [v if type(v) in _LEAVES or type(v) is list else clone(v) for v in state]  # type: ignore[return-value]
    if is_dataclass(state):
        out = copy(state)
        vars(out).update((n, v if type(v) in _LEAVES else clone(v)) for n, v in vars(state).items())
        return out
    return state
