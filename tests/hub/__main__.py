"""`python -m tests.hub --dir DIR [--repo R] [--port P] …`: serve DIR as a repository until interrupted.

The first line on stdout is JSON: `{"url": …, "repo": …, "revision": …}`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import threading
from pathlib import Path

from tests.hub.server import DEFAULT_REPO, Faults, Hub


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.hub")
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--repo", default=DEFAULT_REPO)
    parser.add_argument("--revision", default="", help="40 digits; default: 1bae0e1 and a hash of the content")
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--token", default=None)
    parser.add_argument("--bytes-per-second", type=int, default=None)
    parser.add_argument("--rate-limited", type=int, default=0, metavar="N", help="answer N file requests with 429")
    parser.add_argument("--retry-after", default="1")
    parser.add_argument("--cut-after", type=int, default=None, metavar="BYTES")
    parser.add_argument("--cuts", type=int, default=0)
    parser.add_argument("--stall-after", type=int, default=None, metavar="BYTES")
    parser.add_argument("--stalls", type=int, default=0)
    given = parser.parse_args()
    faults = Faults(
        cut_after_bytes=given.cut_after,
        cuts=given.cuts,
        stall_after_bytes=given.stall_after,
        stalls=given.stalls,
        rate_limited=given.rate_limited,
        retry_after=given.retry_after,
        token=given.token,
        bytes_per_second=given.bytes_per_second,
    )
    hub = Hub(given.dir, given.repo, given.revision, faults=faults, address=given.address, port=given.port)
    with hub, contextlib.suppress(KeyboardInterrupt):
        print(json.dumps({"url": hub.url, "repo": hub.repo, "revision": hub.revision}), flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
