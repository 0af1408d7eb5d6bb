"""BiStream: Lin, Ooi, Wang, Yu, Scalable Distributed Stream Join Processing (SIGMOD 2015), sections 4 to 6 and B to E.

data       TPC-H streams          queries    Q5, Q7 and Band, with event times by arrival
models     JMx, JBx, JBx-CRy      cluster    a model's units in this process, everything counted
routes     routing alone          equations  1 to 7
lab        every run once, its answer verified by DuckDB
claims/    one module per section of the evaluation
"""
