"""Real queries, real checkpoints, on one Spark session."""
