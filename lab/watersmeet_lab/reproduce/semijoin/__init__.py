"""Tran and Lee, Distributed stream join query processing with semijoins (Distributed and Parallel Databases, 2010).

data      streams with the paper's rates, sizes and selectivities, uniform and skewed; random queries of table 2; a log like the World Cup's
execute   plans run by the engine of sites over simulated lines; its letters counted as the paper counts messages
counting  every one-way join of a query, executed; the cheapest of all plans
claims    figures 7, 9 and 10, table 3, section 2.2 and the bars, each with what was counted and timed here
"""
