"""The join of one turn: sides of old and new tuples, drivers in their order, probes of indexes inside the windows."""
