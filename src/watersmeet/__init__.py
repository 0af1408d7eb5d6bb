"""Joins any number of data streams, on any predicate, over any window, on Spark, from Python."""

from watersmeet.api import join, sql, subscriptions
from watersmeet.errors import WatersmeetError
from watersmeet.query.scaling import Scaling
from watersmeet.query.sites import Line, Sites
from watersmeet.query.stream import Stream
from watersmeet.runtime import local

__all__ = ["Line", "Scaling", "Sites", "Stream", "WatersmeetError", "join", "local", "sql", "subscriptions"]
