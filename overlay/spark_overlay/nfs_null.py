"""Does an NFSv4 server answer? One RPC NULL call over TCP (RFC 5531, program 100003, version 4, procedure 0), no
rpcbind, no mount.

`python3 -S -m spark_overlay.nfs_null [HOST [PORT]]` exits 0 or 1: the exporter's health check.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import time

NFS_PROGRAM, NFS_VERSION = 100003, 4
_XID = 0x5350524B
_CALL = struct.pack(">10I", _XID, 0, 2, NFS_PROGRAM, NFS_VERSION, 0, 0, 0, 0, 0)
_LAST_FRAGMENT = 0x80000000


def null_call(host: str, port: int, seconds: float) -> None:
    """Returns when the server accepted the call. Raises OSError (refused, timed out) or ValueError (it answered, but
    not so).
    """
    end = time.monotonic() + seconds
    with socket.create_connection((host, port), timeout=seconds) as connection:
        connection.sendall(struct.pack(">I", _LAST_FRAGMENT | len(_CALL)) + _CALL)
        answer = b""
        while len(answer) < 28:
            connection.settimeout(max(0.01, end - time.monotonic()))
            part = connection.recv(256)
            if not part:
                raise ValueError("the server closed the connection")
            answer += part
    xid, kind, denied, _, verifier_bytes = struct.unpack(">5I", answer[4:24])
    if xid != _XID or kind != 1 or denied or verifier_bytes:
        raise ValueError("the server refused the call")
    if struct.unpack(">I", answer[24:28])[0]:
        raise ValueError("the server does not speak NFS version 4")


def main(argv: list[str]) -> int:
    host = argv[0] if argv else "127.0.0.1"
    try:
        null_call(host, int(argv[1] if len(argv) > 1 else os.environ.get("NFS_PORT") or 2049), 10.0)
    except (OSError, ValueError) as error:
        print(f"NFSv4 does not answer: {error or type(error).__name__}")
        return 1
    print("NFSv4 answers")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
