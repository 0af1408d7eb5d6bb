"""Logical query to plan: rules, order, cost, explain."""
