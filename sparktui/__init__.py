"""sparktui: serve DeepSeek-V4.1-Flash-1017 on three or four DGX Sparks, from one terminal."""

__version__ = "0.1.0"
