"""One module an adapter."""
