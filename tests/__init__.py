"""The tests: an oracle, cases drawn for it, and what must hold."""
