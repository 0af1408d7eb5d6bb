"""Golden plans and the planner's rules."""
