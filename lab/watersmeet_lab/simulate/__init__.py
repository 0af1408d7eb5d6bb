"""Simulations in one process: a network with delays, and the protocols of three papers over it.

network     links that delay and reorder messages, and count them
biclique    BiStream's dispatchers and units, tuple by tuple
sites       the engine of sites over lines that take time, by heartbeats or by a bound on delays
ring        RJoin over Chord
local       what `wm.local` takes from here
"""
