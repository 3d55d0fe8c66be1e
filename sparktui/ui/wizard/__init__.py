"""The wizard: one step after the other."""
