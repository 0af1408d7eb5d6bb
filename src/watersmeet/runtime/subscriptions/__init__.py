"""The registry of continuous queries, and who runs it.

- registry.py: queries that are added and removed, and those of a batch
- log.py: the registry on disk: changes and snapshots
- engines.py: what answers the queries
- binding.py: texts of queries to subscriptions
- own.py: queries that share nothing, as dataflows of their own
- local.py: a registry in process, fed batch by batch
- ask.py: one-time queries over the tuples that are kept
- latest.py: these tuples, from the files of the latest committed batch; apart from ask.py, which runs without Spark
- handle.py: a registry on Spark: `wm.subscriptions`
- feed.py: a stream of (id, action, sql) rows into the registry
- sinks.py: one sink for all answers, or one per query
"""
