"""`watersmeet bench subscriptions` in parts.

- workload.py: relations, queries, and DuckDB's answers
- systems.py: the ways to run the queries on Spark; a new one is one entry of `SYSTEMS`
- spark_join.py: the same query as Spark writes it
- watch.py: time and memory of a run, and the limits that stop it
- trial.py: one run in a process of its own
"""
