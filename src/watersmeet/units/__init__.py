"""What a unit does with an inbox: window state, the join step, the sequencer. Knows plans and kernels, no Spark."""
