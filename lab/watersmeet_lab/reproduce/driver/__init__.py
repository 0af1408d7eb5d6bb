"""Valsomatzis and Gounaris (2013), Driver input selection for main-memory multi-way joins: its evaluation again.

data        data sets I to VI, and others of 3 to 6 inputs
schedule    batches, and the runs in which a policy processes them
trial       one policy over one data set: verified, counted, timed
lab         all trials, alternating
claims/     what the paper says against what was found
"""
