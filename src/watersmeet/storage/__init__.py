"""What units keep between batches: immutable segments of tuples with their indexes, where these lie, and the memory that names them."""
