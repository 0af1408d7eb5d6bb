"""Tran and Lee, Distributed stream join query processing with semijoins (Distributed and Parallel Databases, 2010).

data      streams with the paper's rates, sizes and selectivities; random queries of table 2; a log like the World Cup's
counting  one-way joins executed on them, shipments and bytes counted
claims    figures 7, 9 and 10, table 3, section 2.2 and the bars, each with what was counted and timed here
"""
