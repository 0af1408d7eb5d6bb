"""A plan as text and as facts: what `explain()` shows."""
