"""Programs of units, see `units.program`: one module per way to run a plan in rounds."""
