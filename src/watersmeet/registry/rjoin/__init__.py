"""RJoin as the units of a runtime of rounds: every unit is a node of the ring.

- index.py: tuples under keys: codes, copies, who gets them
- templates.py: the shapes and poses of the queries of a batch
- wire.py: rows as Arrow tables that every process understands
- contents.py: the tuples themselves, which travel with the rows that they have rewritten
- memory.py: a node's state, from its segments
- rates.py: how busy keys are, as nodes tell each other
- node.py: one node's turn in one round
- owner.py: answers at the node that owns the query
"""
