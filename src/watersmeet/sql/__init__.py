"""The front end: SQL text, or the fluent form, to the logical query. The only place that knows sqlglot."""
