"""The registry of continuous queries, and who runs it.

- registry.py: queries that are added and removed
- versions.py: what each version changed, and the queries of one version as units see them
- answered.py: the registry as a runtime needs it: the queries of a batch, and those that are struck out
- log.py: the registry on disk: changes and snapshots
- local.py: a registry in process, fed batch by batch
- ask.py: one-time queries over the tuples that are kept
- latest.py: these tuples, from the files of the latest committed batch
- handle.py: a registry on Spark: `wm.subscriptions`
- feed.py: a stream of (id, action, sql) rows into the registry
- sinks.py: one sink for all answers, or one per query
"""
