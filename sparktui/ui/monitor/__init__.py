"""The monitor: the panes, large, with trends."""
