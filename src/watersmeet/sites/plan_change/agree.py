"""How sites agree on another plan: one of them decides, all promise to wait, and then all change at one point of event time.

    decider           others
    proposed k, T ->  is no stream of mine past T?  promise: none will pass T until I hear more      -> answer k
    all have promised: epoch k begins with heads of T; every letter of every site says so from now on
    one has not:      withdrawn k ->  go on; another proposal may follow, with a later T

Heads before T keep the plan that they set out with. A promise holds watermarks back, so results may be late by two letters; T is chosen so far ahead that streams rarely get there.

Invariant: no site has told anybody of a time at or after T when it promises, so no head has set out that the new plan holds for. A letter names the epochs
that it speaks of, so a site learns of an epoch before it is sent anything of it.
Implements: Tran and Lee (2010), section 7's adaptivity; the paper leaves open how sites change together.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from watersmeet.sites.planning.placed import Sequences


@dataclass
class Proposal:
    """A plan for heads from a time on."""

    number: int
    sequences: Sequences
    since: int
    expects: dict[str, float] = field(default_factory=dict)
    """By 'sender>receiver' the bytes per second of event time that its letters are expected to take."""


@dataclass
class Agreement:
    """What a site has proposed, promised and answered; JSON."""

    proposed: Proposal | None = None
    """The decider's own, while answers are missing."""
    agreed: list[str] = field(default_factory=list)
    """The sites that have promised."""
    promised: Proposal | None = None
    """Another's, until it is decided."""
    answered: dict[str, Any] = field(default_factory=dict)
    """The last answer: the number, and whether it was a promise."""
    ended: int = 0
    """The number of the last proposal that was adopted or withdrawn."""

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Agreement:
        known = {n: Proposal(**raw[n]) if raw[n] else None for n in ("proposed", "promised")}
        return cls(**{**raw, **known})

    @property
    def limit(self) -> int | None:
        """The time that no stream of this site may pass for now."""
        open_ = self.proposed or self.promised
        return None if open_ is None else open_.since

    def says(self) -> dict[str, Any]:
        """What letters carry of it."""
        out: dict[str, Any] = {"ended": self.ended} if self.ended else {}
        if self.proposed is not None:
            out["proposed"] = asdict(self.proposed)
        if self.answered:
            out["answered"] = dict(self.answered)
        return out

    def propose(self, proposal: Proposal) -> None:
        self.proposed, self.agreed = proposal, []

    def hear(self, sender: str, said: Mapping[str, Any], furthest: int, others: Collection[str]) -> Proposal | None:
        """What a letter says of proposals; `furthest` is how far this site's streams have been told to be. The proposal that all have promised, if this was the last answer."""
        if "proposed" in said and said["proposed"]["number"] > self.answered.get("number", 0):
            proposal = Proposal(**said["proposed"])
            is_kept = furthest <= proposal.since
            self.answered = {"number": proposal.number, "is_kept": is_kept}
            self.promised = proposal if is_kept else None
        if self.promised is not None and said.get("ended", 0) >= self.promised.number:
            self.promised = None
        answer = said.get("answered", {})
        if self.proposed is None or answer.get("number") != self.proposed.number:
            return None
        if not answer["is_kept"]:
            self.end()
            return None
        self.agreed = sorted({*self.agreed, sender})
        if set(self.agreed) < set(others):
            return None
        done = self.proposed
        self.end()
        return done

    def end(self) -> None:
        """The proposal is adopted or withdrawn."""
        assert self.proposed is not None
        self.ended, self.proposed, self.agreed = self.proposed.number, None, []
