"""What units do: one module per operator, each with the state that it keeps; `assemble` says which of them carry out a plan."""
