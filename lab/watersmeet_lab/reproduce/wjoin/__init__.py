"""W-join: Hammad, Aref, Elmagarmid, Joining Multiple Data Streams with Window Constraints (Purdue CSD TR 02-010, 2002).

data       exponential streams, stores with opening hours     answer   DuckDB's results, as a count and a checksum
lab        a kernel over a feed, compared with the answer, counted and timed
claims/    figures 7 and 8; figure 9; figure 13; figure 14
"""
