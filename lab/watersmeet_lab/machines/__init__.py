"""Machines for tests and benchmarks, played on this one: hosts with lines between them, an object store, a broker of Kafka."""
