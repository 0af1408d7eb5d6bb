"""Everything that a query says of time: window items, conditions on event times, groups by window()."""
