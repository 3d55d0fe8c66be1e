"""A simulated cluster on this machine: the product unchanged above `remote/link.py`, everything below it made up.

No root, no Docker, no GPU, no network. Nothing but the command line imports it.
"""
