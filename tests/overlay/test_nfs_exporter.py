"""The weights' exporter: what it tells each server, the NULL call, and nfs-ganesha for real, read back with libnfs."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from spark_overlay.nfs_exports import client_list, ganesha_config, kernel_exports
from spark_overlay.nfs_null import null_call

from tests.overlay.conftest import OVERLAY

needs_ganesha = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("ganesha.nfsd") or not shutil.which("nfs-cat"),
    reason="nfs-ganesha, libnfs-utils or root is missing",
)


def test_the_kernels_exports_name_each_client_read_only() -> None:
    text = kernel_exports("/export", client_list("10.0.22.2, 10.0.23.0/24"))
    options = "ro,sync,no_subtree_check,no_root_squash,insecure,fsid=0"
    assert text == f"/export 10.0.22.2({options}) 10.0.23.0/24({options})\n"


def test_ganesha_refuses_everybody_but_the_clients() -> None:
    text = ganesha_config("/export", ("10.0.22.2",), 2049, "/state")
    assert re.search(r"Access_Type = None;.*CLIENT \{ Clients = 10\.0\.22\.2; Access_Type = RO; \}", text, re.DOTALL)
    assert "RW" not in text


@pytest.mark.parametrize("text", ["", "*", "0.0.0.0/0", "10.0.0.1(rw)", "10.0.0.1;rm", "worker1"])
def test_clients_that_are_no_addresses_or_everybody_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="NFS_CLIENTS"):
        client_list(text)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"])
def test_something_else_on_the_port_is_not_taken_for_nfs(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def talk() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(256)
                connection.sendall(answer)

        thread = threading.Thread(target=talk, daemon=True)
        thread.start()
        with pytest.raises((ValueError, OSError)):
            null_call("127.0.0.1", server.getsockname()[1], 5)
        thread.join(5)


@contextmanager
def exporter(folder: Path, state: Path, clients: str) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {
        "PATH": os.environ["PATH"], "PYTHONPATH": str(OVERLAY), "PYTHONDONTWRITEBYTECODE": "1", "NFS_SERVER": "ganesha",
        "NFS_PORT": str(port), "NFS_EXPORT": str(folder), "NFS_CLIENTS": clients, "STATE_PATH": str(state),
    }  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-u", "-S", "-m", "spark_overlay.entry", "nfs"],
        env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if line.startswith("[spark] NFS READY"):
                break
        else:
            raise AssertionError("the exporter never became ready")
        yield port, process
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)


def cat(port: int, name: str) -> subprocess.CompletedProcess[bytes]:
    url = f"nfs://127.0.0.1//{name}?version=4&nfsport={port}"
    return subprocess.run(["nfs-cat", url], capture_output=True, timeout=60)


@pytest.mark.testbed
@needs_ganesha
def test_a_client_reads_the_weights_and_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "weights").mkdir()
    data = os.urandom(3 << 20)
    (tmp_path / "weights" / "shard").write_bytes(data)
    (tmp_path / "weights" / "shard").chmod(0o600)
    with exporter(tmp_path / "weights", tmp_path / "state", "127.0.0.1") as (port, process):
        null_call("127.0.0.1", port, 5)
        assert cat(port, "shard").stdout == data
        url = f"nfs://127.0.0.1//new?version=4&nfsport={port}"
        subprocess.run(["nfs-cp", str(tmp_path / "weights" / "shard"), url], capture_output=True, timeout=60)
        assert [path.name for path in (tmp_path / "weights").iterdir()] == ["shard"]
    assert process.returncode == 0
    with pytest.raises(OSError):
        null_call("127.0.0.1", port, 1)


@pytest.mark.testbed
@needs_ganesha
def test_a_client_that_is_not_named_is_refused(tmp_path: Path) -> None:
    (tmp_path / "shard").write_bytes(b"weights")
    with exporter(tmp_path, tmp_path / "state", "10.0.22.0/24") as (port, _):
        answer = cat(port, "shard")
        assert answer.returncode != 0 and b"weights" not in answer.stdout
