"""Kernels that answer registered queries: the shared plan (`probe_trie`, `fan_out`), and RJoin on its ring (the others)."""
