"""doctor's checks: one probe a node, then pure judgements, one subject a file."""
