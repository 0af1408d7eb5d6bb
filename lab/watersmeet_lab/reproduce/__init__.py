"""Reproductions: one package per paper, each a list of claims with what was counted and timed here.

Answers are verified before anything is counted; counts come first, since they hold on any machine, and times second.
"""
