"""What a cluster is: pure values, no I/O."""
