"""The claims of RJoin's evaluation."""
