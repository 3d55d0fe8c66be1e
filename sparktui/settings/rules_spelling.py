"""Rules of single values: examples left in place, paths, image and hub names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import ip_address, ip_network

from sparktui.cluster.nfs_clients import problem_of
from sparktui.settings.model import SETTINGS, Settings
from sparktui.settings.rule import Found, shortened

EXAMPLE_NETWORKS = tuple(ip_network(text) for text in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"))
"""Documentation addresses (RFC 5737), which the example files use."""
EXAMPLE_MARK = "CHANGE-ME"
EXAMPLE_INTERFACES = {"FABRIC_IFACE": "enp1s0f1np1", "NCCL_SOCKET_IFNAME": "enP7s7", "GLOO_SOCKET_IFNAME": "enP7s7"}
"""Right on many Sparks, not on all."""
_REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*")
_SHARED_FOLDERS = ("", "/root", "/home", "/usr", "/var", "/etc", "/opt", "/srv", "/mnt", "/tmp", "/var/tmp", "/var/lib")
_OWN_FOLDERS = ("MODEL_DIR", "COMMON_MODEL", "ENGRAM_DIR", "WORKER_DIR", "WORKER_ENGRAM_DIR", "WORKER_MODEL_DIR")
_NEEDED_PATHS = (*_OWN_FOLDERS[:4], "DSV41_PACKED_DIR", "NCCL_CONTAINER_DIR", "NCCL_PIP_SO")
_OPTIONAL_PATHS = (*_OWN_FOLDERS[4:], "NCCL_HOST_DIR", "NCCL_WORKER_DIR", "SSH_IDENTITY")


def examples(settings: Settings) -> Iterator[Found]:
    for name in SETTINGS:
        value = getattr(settings, name.lower())
        words = value if isinstance(value, tuple) else (value,) if isinstance(value, str) else ()
        left = [word for word in words if is_example(word)]
        if left:
            yield Found(name, f"{shortened(' '.join(left))} is an example: write your own")
    for name, interface in EXAMPLE_INTERFACES.items():
        if getattr(settings, name.lower()) == interface:
            yield Found(name, f"{interface} is an example value: doctor looks whether each node has it", note=True)


def is_example(word: str) -> bool:
    """Whether a word of a value comes from the example files and cannot be anybody's own."""
    if EXAMPLE_MARK in word or word.endswith(".example"):
        return True
    try:
        address = ip_address(word.rpartition("@")[2].split("/")[0])
    except ValueError:
        return False
    return any(address in network for network in EXAMPLE_NETWORKS)


def paths(settings: Settings) -> Iterator[Found]:
    for name in (*_NEEDED_PATHS, *_OPTIONAL_PATHS):
        value = getattr(settings, name.lower())
        if not value and name in _OPTIONAL_PATHS:
            continue
        if not value.startswith("/"):
            yield Found(name, f"{shortened(value) or 'nothing'} is no absolute path")
        elif re.search(r"[:,\x00-\x1f]", value) or ".." in value.split("/"):
            yield Found(name, "holds a colon, comma, control character or .., which a mount cannot carry")
        elif name in _OWN_FOLDERS and value.rstrip("/") in (*_SHARED_FOLDERS, str(settings.home)):
            yield Found(name, f"{value} is a folder of other things: name one of its own")


def names(settings: Settings) -> Iterator[Found]:
    for name in ("IMAGE", "BASE_IMAGE"):
        if not _REFERENCE.fullmatch(getattr(settings, name.lower())):
            yield Found(name, f"{shortened(getattr(settings, name.lower())) or 'nothing'} is no image's name")
    if settings.base_digest and not re.fullmatch(r"sha256:[0-9a-f]{64}", settings.base_digest):
        yield Found("BASE_DIGEST", "is no digest: sha256: and 64 digits of 0-9 and a-f, or nothing")
    if not re.fullmatch(r"[0-9a-f]{7,40}", settings.hf_revision):
        yield Found(
            "HF_REVISION", f"{shortened(settings.hf_revision) or 'nothing'} is no commit: 7 to 40 digits", "1bae0e1"
        )
    if not re.fullmatch(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+", settings.hf_repo):
        yield Found("HF_REPO", f"{shortened(settings.hf_repo) or 'nothing'} is not owner/name")
    if settings.hf_endpoint and not re.fullmatch(r"https?://[^\s/@]+(/\S*)?", settings.hf_endpoint):
        yield Found("HF_ENDPOINT", "is no http:// or https:// URL")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", settings.nfs_volume):
        yield Found("NFS_VOLUME", f"{shortened(settings.nfs_volume) or 'nothing'} is no volume's name")
    if wrong := problem_of(settings.nfs_clients):
        yield Found("NFS_CLIENTS", wrong)
    for word in settings.build_args:
        if not re.match(r"[A-Za-z_][A-Za-z0-9_]*=", word):
            yield Found("BUILD_ARGS", f"{shortened(word)} is not NAME=value")
    dockerfile = settings.build_dockerfile
    if dockerfile and (dockerfile.startswith("/") or ".." in dockerfile.split("/")):
        yield Found("BUILD_DOCKERFILE", "must lie inside this folder")


RULES = (examples, paths, names)
