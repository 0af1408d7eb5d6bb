"""The last units: rows without repetition, groups, groups that end; what leaves the joins for them."""
