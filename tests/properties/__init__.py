"""What must hold for every query: properties against the oracle."""
