"""BiStream's order-consistent protocol, message by message: dispatchers, signals, and units that put tuples in order."""
