"""Joins across sites over a simulated network: the engine of `watersmeet.sites`, whose letters take time there."""
