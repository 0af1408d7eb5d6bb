"""The logical model: streams, predicates, the window graph, the n-ary join. Frozen and validating; imports nothing of ours."""
