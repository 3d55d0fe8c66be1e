"""What SGLang's plugin framework (entry-point group `sglang.srt.plugins`) calls in every engine process.

The framework logs an exception of a plugin and goes on; what must not go on ends the process here.
"""

from __future__ import annotations

import os
import sys
import traceback

from spark_overlay.key_file import mask_log_records, read_key


def install() -> None:
    """Runs once in each engine process, before its work starts."""
    try:
        key = read_key(os.environ.get("API_KEY_FILE"))
        if key:
            mask_log_records(key)
    except Exception:
        traceback.print_exc()
        print("[spark] ERROR the overlay could not be installed in an engine process; it ends here", flush=True)
        sys.stdout.flush()
        os._exit(70)
