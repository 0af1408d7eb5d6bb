"""Simulations in one process: a network with delays, and the protocols of three papers over it.

network     links that delay and reorder messages, and count them
biclique    BiStream's dispatchers and units, tuple by tuple
sites       joins across sites, by one-way joins
ring        RJoin over Chord
local       what `wm.local` takes from here
"""
