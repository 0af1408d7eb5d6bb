"""The settings of table 3: which routing over how many units.

    JMx       the join-matrix over sqrt(x) rows and columns
    JBx       the join-biclique over x/2 + x/2 units, random routing
    JBx-CRy   the same with ContRand routing, y subgroups a side

ContRand hashes a key. Band has none: its content-sensitive routing is by ranges of values with subgroups of one unit,
written JBx-RG here.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from watersmeet_lab.reproduce.bistream.equations import Relation, bandwidth_of_biclique, bandwidth_of_matrix
from watersmeet_lab.reproduce.bistream.queries import StreamQuery

_NAME = re.compile(r"J(?P<kind>[MB])(?P<units>\d+)(?:-(?:CR(?P<groups>\d+)|(?P<range>RG)))?")


@dataclass(frozen=True)
class Model:
    """One setting.

    >>> Model.of("JB16-CR4").routing, Model.of("JM16").partitions
    ('contrand(4, 4)', 4)
    """

    name: str
    units: int
    routing: str
    subgroups: int = 1

    @classmethod
    def of(cls, name: str) -> Model:
        found = _NAME.fullmatch(name)
        assert found is not None, name
        units = int(found["units"])
        if found["kind"] == "M":
            return cls(name, units, "matrix")
        if found["range"]:
            return cls(name, units, "range", units // 2)
        groups = int(found["groups"] or 1)
        return cls(name, units, "random" if groups == 1 else f"contrand({groups}, {groups})", groups)

    @property
    def is_matrix(self) -> bool:
        return self.routing == "matrix"

    @property
    def partitions(self) -> int:
        """Into how many partitions each relation is cut."""
        return math.isqrt(self.units) if self.is_matrix else self.units // 2

    def relation(self, tuples: float, tuple_bytes: float) -> Relation:
        """The terms of table 2 for a relation under this setting."""
        return Relation(tuples, tuple_bytes, self.partitions, self.subgroups)

    def bandwidth(self, r: Relation, s: Relation) -> float:
        """Equation 6 or 5."""
        return bandwidth_of_matrix(r, s) if self.is_matrix else bandwidth_of_biclique(r, s)


def content_sensitive(query: StreamQuery, units: int, groups: int) -> str:
    """The name of the content-sensitive setting for a query.

    >>> from watersmeet_lab.reproduce.bistream.queries import BAND, Q5
    >>> content_sensitive(Q5, 16, 4), content_sensitive(BAND, 16, 4)
    ('JB16-CR4', 'JB16-RG')
    """
    return f"JB{units}-CR{groups}" if query.equality else f"JB{units}-RG"
