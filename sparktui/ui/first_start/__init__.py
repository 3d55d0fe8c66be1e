"""The questions that make a first .env."""
