"""RJoin: Idreos, Liarou, Koubarakis, Continuous Multi-Way Joins over Distributed Hash Tables (EDBT 2008), section 8.

workload   ten relations of ten attributes, Zipf; chains of equi-joins
answer     what DuckDB counts for a sample of the queries
lab        every run once, its answers verified
claims/    one module per group of figures
"""
