"""The paper's claims, and one beyond it, against what was counted and timed."""
