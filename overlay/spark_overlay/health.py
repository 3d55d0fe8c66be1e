"""The container's health check: `python3 -S -m spark_overlay.health`, exit 0 or 1. Imports nothing heavy.

Rank 0: SGLang's /health (which generates a token, so it takes a second). Other ranks: the engine's dummy health server,
which only says that the process lives.
"""

from __future__ import annotations

import os
import socket
import sys
import time

DEADLINE_SECONDS = 25.0
"""Below the health check's own 30 s, so that the reason is printed."""


def local_address(environment: os._Environ[str] | dict[str, str]) -> tuple[str, int]:
    """Where this container's server listens, as seen from inside."""
    host = environment.get("HOST", "").strip()
    if host in ("", "0.0.0.0", "::"):
        host = "127.0.0.1"
    return host, int(environment.get("SERVER_PORT", "").strip() or 8888)


def http_status(host: str, port: int, path: str, seconds: float) -> int:
    """The status code of GET `path`. Raises OSError (refused, timed out) or ValueError (no HTTP answer)."""
    end = time.monotonic() + seconds
    with socket.create_connection((host, port), timeout=seconds) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while b"\r\n" not in answer:
            connection.settimeout(max(0.01, end - time.monotonic()))
            part = connection.recv(1024)
            if not part:
                break
            answer += part
    words = answer.split(b"\r\n", 1)[0].split()
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        raise ValueError("no HTTP answer")
    return int(words[1])


def main() -> int:
    try:
        host, port = local_address(os.environ)
        status = http_status(host, port, "/health", DEADLINE_SECONDS)
    except (OSError, ValueError) as error:
        print(f"not healthy: {error or type(error).__name__}")
        return 1
    print(f"/health {status}")
    return 0 if status == 200 else 1


if __name__ == "__main__":
    sys.exit(main())
