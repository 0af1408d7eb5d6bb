"""RJoin as the units of a runtime of rounds: every unit is a node of the ring.

- index.py: tuples under keys: codes, copies, who gets them; how busy keys are
- shape.py: queries as they are rewritten; coded columns
- catalogue.py: templates as arrays, rows as Arrow tables
- templates.py: the shapes and poses of the queries of a batch
- contents.py: the tuples themselves, which travel with the rows that they have rewritten
- ring_state.py: rows and tuples under keys, and what they make of each other
- covering.py: rows that DISTINCT can do without, because others lead to the same answers
- memory.py: a node's state, from its segments
- node.py: one node's turn in one round
- owner.py: answers at the node that owns the query
"""
