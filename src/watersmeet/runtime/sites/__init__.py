"""One Spark application for each site of a query, and the exchange that their letters pass through."""
