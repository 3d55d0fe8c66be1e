"""What each step is, in words: its title, what it does, what that means on the Sparks of these settings. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparktui.settings import Settings

CHECKPOINT = "476 GiB"
ENGRAM_GIB = 189.0
"""Both tables, all columns."""
PAGE_OVERHEAD = 4096 / (15 * 264)
"""A page of 4,096 bytes holds 15 rows of 264."""
WEIGHTS_GIB = {2: 145, 3: 101, 4: 77}
ALL_WEIGHTS_GIB = 305
COUNTS = {1: "one", 2: "two", 3: "three", 4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight"}


@dataclass(frozen=True, slots=True)
class StepWords:
    """Attributes:
    what: two sentences.
    real: what it means on these Sparks: amounts and times.
    where: the nodes that it works on, to follow "run pack".
    pane: which live pane matters most while it runs: `links`, `memory`, `boot` or `decode`.
    """

    title: str
    what: str
    real: str
    where: str
    pane: str


def words_of(verb: str, settings: Settings | None) -> StepWords:
    ranks = len(settings.nodes) if settings is not None else 3
    every = f"on all {COUNTS.get(ranks, str(ranks))} Sparks"
    model_dir = str(settings.model_dir) if settings is not None else "MODEL_DIR"
    shared = settings is None or bool(int(settings.nfs_share))
    words = {
        "doctor": lambda: StepWords(
            "Check every Spark",
            "Asks every node at once: login, Docker, driver, memory, disk, the card and its cables, and whether the "
            "settings fit them. It changes nothing.",
            "What card, driver, Docker and disks say is read on each Spark, over one login.",
            every,
            "links",
        ),
        "download": lambda: _download(settings, model_dir, shared),
        "build": lambda: _build(settings),
        "share": lambda: _share(model_dir, shared, every),
        "pack": lambda: StepWords(
            "Pack the Engram rows",
            "Copies each rank's part of the two Engram tables to that node's own NVMe, every page with a checksum. "
            "A lookup is then one read from the local disk, never from the network or from memory.",
            f"{ENGRAM_GIB:.0f} GiB in all, about {ENGRAM_GIB * PAGE_OVERHEAD / ranks:.0f} GiB a node; "
            "about 10 minutes, once.",
            every,
            "memory",
        ),
        "serve": lambda: StepWords(
            "Start the engine",
            "Checks once that every rank loads, then starts one container a rank, the workers first and the head last. "
            "It is done when the head has warmed up and says that it is ready.",
            f"About {WEIGHTS_GIB.get(ranks, round(ALL_WEIGHTS_GIB / ranks))} GiB of weights a Spark; a boot takes 12 "
            "to 13 minutes, 8 of them reading weights.",
            every,
            "boot",
        ),
        "smoke": lambda: StepWords(
            "Ask it nine things",
            "Asks the endpoint for 19 + 23, strict JSON, one tool call and one picture, then for five things that "
            "coding agents lean on. Each answer is judged, so that a model that talks nonsense is seen here.",
            "A few seconds on Sparks that serve nobody else.",
            "on head",
            "decode",
        ),
    }
    return words[verb]() if verb in words else StepWords(verb, "", "", every, "memory")


def _download(settings: Settings | None, model_dir: str, shared: bool) -> StepWords:
    revision = f" at {settings.hf_revision[:12]}" if settings is not None else ""
    workers = "the workers read it over the cables." if shared else "NFS_SHARE=0: each worker needs a copy of its own."
    return StepWords(
        "Download the checkpoint",
        f"Fetches the pinned checkpoint{revision} to the head and compares every file's size with the hub's list. "
        "It goes on where it stopped, also after a kill or a full disk.",
        f"{CHECKPOINT} to {model_dir}, once; {workers}",
        "on head",
        "memory",
    )


def _build(settings: Settings | None) -> StepWords:
    each = settings is not None and settings.build_on == "each"
    how = (
        "BUILD_ON=each: every Spark builds its own image, and all are compared."
        if each
        else "It is built once, on the head; a worker then gets only the layers that it lacks."
    )
    return StepWords(
        "Build the image",
        f"Adds sparktui's overlay to the SGLang base image and checks it inside the engine. {how}",
        "The first time the whole base goes to each worker over the cables; later only what changed.",
        "on head, then on the workers",
        "memory",
    )


def _share(model_dir: str, shared: bool, every: str) -> StepWords:
    if not shared:
        return StepWords(
            "Share the checkpoint",
            "NFS_SHARE=0: every Spark reads its own copy of the checkpoint. There is nothing to share; it is only "
            "looked whether each copy is whole.",
            f"{CHECKPOINT} on every Spark.",
            every,
            "links",
        )
    return StepWords(
        "Share the checkpoint",
        "Exports the checkpoint from the head over NFS, read-only and only to the workers. Each worker gets it as a "
        "Docker volume, and it is looked whether the worker really sees the files.",
        f"{CHECKPOINT} in {model_dir} stay once, on the head; the weights cross the cables at each boot.",
        "from head to the workers",
        "links",
    )


def disruption(verb: str, *, serving: bool) -> str:
    """What doing this now can take from somebody, as a question's text; empty when nothing.

    The other steps leave alone what a running engine uses, and say so themselves.
    """
    if verb == "stop":
        return (
            "Stop the engines on all nodes? Requests in flight are lost; files, image and shares stay. "
            "The next boot takes 12 to 13 minutes on Sparks."
        )
    if verb == "serve" and serving:
        return (
            "An engine runs now. Run serve again? Where settings or image differ from what runs, it asks before it "
            "replaces the engine: requests in flight are lost then, and a boot takes 12 to 13 minutes on Sparks. "
            "Where nothing differs, nothing happens."
        )
    return ""
