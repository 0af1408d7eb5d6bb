"""Arrow columns as the engine needs them: in blocks of bounded bytes, as 64-bit codes, as hashes of whole rows."""
