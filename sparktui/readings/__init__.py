"""Text from a node or an engine -> typed value. Pure: no files, no sockets; what cannot be read is None, never 0."""
