"""sparktui: serve DeepSeek-V4.1-Flash-1017 on three or four DGX Sparks, from one terminal."""

__version__ = "0.1.0"

import _signal  # type: ignore[import-not-found]
import sys

if sys.argv[0].endswith(("sparktui", "sparktui/__main__.py")):
    # While the program is still being imported, Ctrl-C ends it quietly (status 130); `cli.main` makes it an exception.
    # `_signal`, since the module `signal` takes longer to import than a hand to let go.
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
