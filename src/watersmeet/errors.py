"""The error tree: everything watersmeet raises on purpose.

Invariant: each message names the offending piece of the query or the data, and the remedy. Assertions are for
programmers; these are for users, and `except WatersmeetError` catches them all.

    WatersmeetError
    ├── QueryError              the query cannot be bound
    │   ├── ParseError        the text cannot be read
    │   ├── UnknownNameError    a stream, alias or column that is not there, or that is there twice
    │   ├── TypeMismatchError   an operation on values of types that Spark does not bring together
    │   ├── WindowError         a window that is malformed, or windows that no result can satisfy
    │   └── UnsupportedError    legal SQL that watersmeet does not run (yet)
    ├── StreamError             a stream's source, time column or lateness is unfit
    ├── DataError               a value in the data for which an expression of the query has no result
    ├── BrokenQueryError        a unit cannot answer its registered queries: one of them will be found to be the reason
    │   └── QuotaError          registered queries take more than their quota; the text names them
    ├── OptionError             a forced choice that cannot do what the query asks
    ├── WorkerError             Spark's Python workers run an interpreter that cannot run watersmeet
    └── CheckpointError         a checkpoint that belongs to another query or placement, or is damaged
"""

import json


class WatersmeetError(Exception):
    """Base of every error that watersmeet raises on purpose."""


class QueryError(WatersmeetError):
    """The query cannot be bound."""


class ParseError(QueryError):
    """The query's text cannot be read."""


class UnknownNameError(QueryError):
    """A stream, alias or column that is not there, or is ambiguous."""


class TypeMismatchError(QueryError):
    """An operation on values of types that Spark does not bring together."""


class WindowError(QueryError):
    """A malformed window, or windows that no result can satisfy."""


class UnsupportedError(QueryError):
    """Legal SQL that watersmeet does not run."""


class StreamError(WatersmeetError):
    """A stream's source, time column or lateness is unfit."""


class DataError(WatersmeetError):
    """A value in the data for which an expression of the query has no result."""


class BrokenQueryError(WatersmeetError):
    """A unit cannot answer its registered queries, and the machine is not the reason."""


class QuotaError(BrokenQueryError):
    """Registered queries take more than their quota.

    >>> error = QuotaError.of(["a", "b"], "more than 5 answers")
    >>> error.queries, error.reason
    (['a', 'b'], 'more than 5 answers')
    """

    @classmethod
    def of(cls, ids: list[str], reason: str) -> "QuotaError":
        """An error whose text alone names the queries: that is all that comes back from a worker."""
        return cls(f"{json.dumps(ids)} {reason}")

    @property
    def queries(self) -> list[str]:
        return list(json.JSONDecoder().raw_decode(str(self))[0])

    @property
    def reason(self) -> str:
        return str(self)[json.JSONDecoder().raw_decode(str(self))[1] + 1 :]


class OptionError(WatersmeetError):
    """A forced choice that cannot do what the query asks."""


class WorkerError(WatersmeetError):
    """Spark's Python workers run an interpreter that cannot run watersmeet."""


class CheckpointError(WatersmeetError):
    """A checkpoint of another query or placement, or a damaged one."""
