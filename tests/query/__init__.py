"""The logical model by itself."""
