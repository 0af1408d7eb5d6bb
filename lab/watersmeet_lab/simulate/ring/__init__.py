"""RJoin over a ring of nodes: messages with delays, queries that come and go, nodes that move."""
