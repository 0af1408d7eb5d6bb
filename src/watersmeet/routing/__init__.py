"""Tuple to unit: which units store and probe a tuple, and how units get the ids that Spark spreads evenly."""
