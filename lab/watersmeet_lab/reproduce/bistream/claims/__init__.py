"""What the paper claims, one module per part of its evaluation; each function measures and returns claims."""
