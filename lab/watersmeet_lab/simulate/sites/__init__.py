"""Joins across sites over a simulated network: the one-way joins of Tran and Lee (2010), and plans made of them."""
