"""Images of the simulated Engines: pulled, built from the product's own Dockerfile, saved and loaded."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparktui.cluster.container import OWNER_LABEL
from sparktui.cluster.disk import BASE_IMAGE_BYTES, IMAGE_BYTES
from sparktui.demo.faults import DISK_FULL
from sparktui.demo.machine import Machine
from sparktui.readings.image_identity import OVERLAY_LABEL
from sparktui.shipped import shipped

if TYPE_CHECKING:
    from sparktui.demo.world import World

ENGINE_VERSION = "0.5.23"
NO_SPACE = "no space left on device"
_PULL_SECONDS, _BUILD_SECONDS = 3.5, 4.5
_BASE_LAYERS = 7
IMAGE_IN_TAR = "simulated-image.json"


def digest_of(text: str) -> str:
    return "sha256:" + hashlib.sha256(f"sparktui demo {text}".encode()).hexdigest()


def base_digest(reference: str) -> str:
    """What the simulated registry says a tag is."""
    return digest_of(f"registry {reference.partition('@')[0]}")


def base_image(reference: str) -> dict[str, Any]:
    """The base that a pull brings."""
    name, _, digest = reference.partition("@")
    repository = name.rpartition(":")[0] or name
    digest = digest or base_digest(name)
    return {
        "Id": digest_of(f"id {digest}"),
        "RepoTags": [] if "@" in reference else [name],
        "RepoDigests": [f"{repository}@{digest}"],
        "Architecture": "arm64",
        "Os": "linux",
        "Size": BASE_IMAGE_BYTES,
        "Config": {"Labels": {}, "Env": ["PATH=/opt/sglang/bin:/usr/bin:/bin"], "Entrypoint": None, "Cmd": ["bash"]},
        "RootFS": {"Type": "layers", "Layers": [digest_of(f"layer {digest} {n}") for n in range(_BASE_LAYERS)]},
    }


def built_image(base: dict[str, Any], tag: str, labels: dict[str, str]) -> dict[str, Any]:
    """What a build makes: the base's layers, one of the lock, one of the overlay."""
    told = json.dumps([base["Id"], labels], sort_keys=True)
    layers = [*base["RootFS"]["Layers"], digest_of(f"lock {ENGINE_VERSION}"), digest_of(told)]
    return {
        "Id": digest_of(f"image {told}"),
        "RepoTags": [tag],
        "RepoDigests": [],
        "Architecture": "arm64",
        "Os": "linux",
        "Size": IMAGE_BYTES,
        "Config": {
            "Labels": labels,
            "Env": ["PATH=/opt/sglang/bin:/usr/bin:/bin", "PYTHONPATH=/opt/spark-overlay"],
            "Entrypoint": ["python3", "-u", "-S", "-m", "spark_overlay.entry"],
            "Cmd": ["run"],
        },
        "RootFS": {"Type": "layers", "Layers": layers},
    }


def pull_lines(world: World, machine: Machine, reference: str) -> Iterator[tuple[float, str]]:
    """(pause in seconds, line) of `docker pull`; the image is there after the last."""
    image = base_image(reference)
    name = reference.partition("@")[0]
    tag, repository = name.rpartition(":")[2], name.rpartition(":")[0]
    short = [layer.removeprefix("sha256:")[:12] for layer in image["RootFS"]["Layers"]]
    step = world.pause(_PULL_SECONDS, machine.name) / (3 * len(short) + 3)
    yield step, f"{tag}: Pulling from {repository}"
    for word in ("Pulling fs layer", "Download complete", "Pull complete"):
        for layer in short:
            if word == "Pull complete" and DISK_FULL in world.faults(machine.name):
                raise DiskFull
            yield step, f"{layer}: {word}"
    yield step, f"Digest: {image['RepoDigests'][0].partition('@')[2]}"
    yield step, f"Status: Downloaded newer image for {reference}"
    machine.add_image(image)
    world.save()


def build_lines(world: World, machine: Machine, argv: list[str]) -> Iterator[tuple[float, str]]:
    """(pause, line) of the classic builder, from the Dockerfile that is shipped; the image is there after the last."""
    tag = _option(argv, "--tag")[0]
    arguments = dict(pair.split("=", 1) for pair in _option(argv, "--build-arg") if "=" in pair)
    base = machine.image(arguments.get("BASE", ""))
    if base is None:
        base = base_image(arguments.get("BASE", ""))
    labels = {
        OWNER_LABEL: "sparktui",
        OVERLAY_LABEL: arguments.get("OVERLAY_HASH", ""),
        "sparktui.engine.lock": ENGINE_VERSION,
        **dict(pair.split("=", 1) for pair in _option(argv, "--label") if "=" in pair),
    }
    steps = _instructions((shipped("overlay") / "Dockerfile").read_text(encoding="utf-8"))
    pause = world.pause(_BUILD_SECONDS, machine.name) / (2 * len(steps) + 4)
    yield pause, "Sending build context to Docker daemon  1.042MB"
    for number, text in enumerate(steps, 1):
        yield pause, f"Step {number}/{len(steps)} : {text}"
        if "bring_to_lock" in text:
            yield 4 * pause, f"the base carries sglang {ENGINE_VERSION}, as the lock says (SIMULATED)"
        if DISK_FULL in world.faults(machine.name) and text.startswith("COPY"):
            raise DiskFull
        yield pause, f" ---> {digest_of(f'{number} {text}').removeprefix('sha256:')[:12]}"
    image = built_image(base, tag, labels)
    yield pause, f"Successfully built {image['Id'].removeprefix('sha256:')[:12]}"
    yield pause, f"Successfully tagged {tag}"
    machine.add_image(image)
    world.save()


class DiskFull(Exception):
    """The simulated disk is full."""


def _option(argv: list[str], name: str) -> list[str]:
    return [argv[at + 1] for at, word in enumerate(argv[:-1]) if word == name]


def _instructions(dockerfile: str) -> list[str]:
    joined = dockerfile.replace("\\\n", " ")
    lines = [" ".join(line.split()) for line in joined.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def load(world: World, machine: Machine, image: dict[str, Any]) -> tuple[int, str]:
    """`docker load`: status and what it prints."""
    if DISK_FULL in world.faults(machine.name):
        return 1, f"Error response from daemon: write /var/lib/docker/tmp: {NO_SPACE}"
    # A load brings no digests.
    machine.add_image({**image, "RepoDigests": []})
    world.save()
    return 0, f"Loaded image: {(image['RepoTags'] or [image['Id']])[0]}"


def save_to_file(world: World, machine: Machine, words: list[str]) -> tuple[int, str]:
    """`docker save --output`: a real, small tar in the demo's folder, of the shape that a load reads."""
    reference, path = words[3], Path(_option(words, "--output")[0])
    image = machine.image(reference)
    if image is None or not world.home.holds(path):
        return 1, ""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        names = []
        for layer in image["RootFS"]["Layers"]:
            name = f"blobs/sha256/{layer.removeprefix('sha256:')}"
            names.append(name)
            _add(tar, name, b"simulated layer\n" * 16_384)
        _add(tar, IMAGE_IN_TAR, json.dumps(image).encode())
        manifest = [{"Config": IMAGE_IN_TAR, "RepoTags": image["RepoTags"], "Layers": names}]
        _add(tar, "manifest.json", json.dumps(manifest).encode())
    return 0, ""


def image_in(tar_bytes: bytes) -> dict[str, Any] | None:
    """The image that a saved tar is of; None where it is none of ours."""
    try:
        with tarfile.open(fileobj=io.BytesIO(tar_bytes)) as tar:
            member = tar.extractfile(IMAGE_IN_TAR)
            found = json.loads(member.read()) if member else None
    except (tarfile.TarError, KeyError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    tar.addfile(entry, io.BytesIO(data))
