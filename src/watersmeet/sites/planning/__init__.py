"""Plans of joins across sites: what is shipped, in which order, and what that costs."""
