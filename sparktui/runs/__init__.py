"""A run: one process, one append-only journal; viewers come and go."""
