"""What is claimed, by part of the paper."""
