"""The rounds runtime, `start()`: micro-batches as supersteps over units that keep their state in files under the checkpoint.

- entering.py: the streams as one union of slots, and the route of every row as SQL
- checkpoint.py: the state folder (intents, manifests, segments, mail), and Spark's own logs beside it
- files.py: segments as Arrow files, mapped into memory; mail; a job's orders
- worker.py: what runs in Spark's Python workers
- supersteps.py: one Spark job per round until no unit has sent mail
- decide.py: routing and shipping, batch by batch
- protocol.py: exactly once: intent, rounds, sink, manifest, collection
- sinks.py: where results go
- results/: a folder of results: its log, its files, how rows get there
- handle.py: a running query
"""
