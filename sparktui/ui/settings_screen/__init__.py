"""The settings, with their meaning."""
