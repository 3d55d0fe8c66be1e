"""The only code that opens sockets."""
