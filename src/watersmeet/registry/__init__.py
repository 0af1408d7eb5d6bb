"""Registered queries: what one is, the versions of a registry, and the engines that answer it: the shared plan, and RJoin.

Who adds queries and runs batches is in `runtime.subscriptions`.
"""
