"""`watersmeet bench sites`: one Spark application for each site, on hosts of their own, and what crosses the lines between them.

workload    streams, the query over them, and DuckDB's answer
site        the program of one site
lines       where sites run, and who counts their bytes: network namespaces, or a counting proxy on loopback
trial       one run of all sites under one plan: bytes, seconds, latency, and whether the answer is right
command     what the command measures and shows
"""

from watersmeet_lab.bench.sites.command import command as command
