"""The shared plan: what a unit does with its share of the registered queries.

- block.py: queries compiled together: a trie of probes for their templates, and how combinations find their queries
- query_index.py: the queries of a block by constants, lists and ranges
- compiled.py: the blocks of a unit, as queries come and go
- visible.py: stored and new tuples as the kernels see them
- fan_out.py: from combinations of templates to pairs of a combination and a query
- unmatched.py: outer, semi and anti joins: tuples that leave without a partner, or since they have one
- distinct.py: of equal rows of a DISTINCT query one pair
- meter.py: what each query takes, and who takes more than its quota
- answers.py: pairs to rows (query, time, values as JSON)
- flow.py: the dataflow, and one step of a unit: join, fan out, store, expire
"""
