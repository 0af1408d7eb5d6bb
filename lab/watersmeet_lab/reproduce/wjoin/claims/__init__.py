"""One module per experiment of sections 4.3 and 5.3."""
