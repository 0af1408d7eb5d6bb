"""Who carries messages and keeps state: in process, or on Spark. Only here: pyspark."""
