"""Widgets: they get values and send messages, and know no step, run or link."""
