"""The stream runtime, `dataframe()`: every stage of a dataflow is one stateful operator of Structured Streaming, or a pass over slices of static data."""
