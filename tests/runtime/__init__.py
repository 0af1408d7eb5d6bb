"""Runtimes without Spark."""
