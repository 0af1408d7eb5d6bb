"""Simulations in one process: a network with delays, and the protocols of three papers over it.

network     links that delay and reorder messages, and count them
biclique    BiStream's dispatchers and units, tuple by tuple
sites       lines: letters of sites, which take time; the rest: algorithms 1-9 as the paper has them, to count what it counts
ring        RJoin over Chord
local       what `wm.local` takes from here
"""
