"""Checkpoints of `start()` as data: read, summed up, verified, exported and imported, restored. No JVM, and no pyspark."""
