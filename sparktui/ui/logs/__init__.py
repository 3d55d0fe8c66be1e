"""All ranks' logs."""
