"""spark_rounds: micro-batches as supersteps over units that keep their state in files under the checkpoint.

- entering.py: the streams as one union of slots, and the route of every row as SQL
- folder.py: the state folder: intents, manifests, segments, mail
- manifest.py: what is true after a batch, and what a batch intends
- files.py: segments as Arrow files, mapped into memory; mail
- worker.py: what runs in Spark's Python workers
- supersteps.py: one Spark job per round until no unit has sent mail
- protocol.py: exactly once: intent, rounds, sink, manifest, collection
- sinks.py: where results go
- handle.py: a running query
"""
