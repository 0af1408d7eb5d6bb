"""`watersmeet bench skewed-sites`: what `auto` ships between sites when one key has most of the tuples, beside the best of all plans.

Streams of two or three sites, in process: every batch covers a second of event time, and letters are taken in the batch after. 0.6 to 0.9 of the tuples of at least one stream have one key.
`auto` runs until it has settled; then the letters of the last batches are counted. The best plan is the true one:

    every one-way join from every place is executed, and its items are counted: what a join ships follows from the streams joined before and from where their
    results are, not from how they were joined. Items that several heads share are counted once. Of all combinations the cheapest are executed on the same
    batches and counted, and what was reckoned of them is compared with what they ship (`reckoned`). With --every all plans of two streams are executed

The cost is latency * letters + bytes / bandwidth. Letters come with every batch, whatever the plan, so ratios of bytes alone are shown, too.
Results of `auto` are compared with DuckDB's before anything is believed.

workload    streams of a seed, and a run of a plan over them
best        the plan that ships least
command     what the command measures and shows
"""

from watersmeet_lab.bench.skewed_sites.command import command as command
