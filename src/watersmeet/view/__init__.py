"""The live page and the metrics: what a query does, batch by batch, for browsers and for Prometheus. Events are plain dictionaries; who makes them is in `runtime.observing`."""
