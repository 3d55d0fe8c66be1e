"""Why a container ended: from its last lines and its exit to one cause sentence and a next step."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sparktui.engine.phases import GRAPH_BAR
from sparktui.engine.signature_table import SIGNATURES, Signature
from sparktui.readings.sglang_log import pieces, split_prefix

_EXCEPTION = re.compile(r"([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Killed))(?:: ?(.*))?")
_CAPTURE = re.compile(r"capture_one_batch|cuda_graph_runner|Capture [Cc][Uu][Dd][Aa] graph failed|in capture\b")
_LEFTOVER = re.compile(r"\{(?:\d|any)\}")
_UP = re.compile(r"The server is fired up and ready to roll!|\[spark\] READY ")
# more than any cause needs; keeps an odd log from costing seconds
_MAX_LINE = 1000
_MAX_LINES = 300
INFORMATION = (
    (
        re.compile(r"FlashInfer autotune: per-rank caches disagree"),
        "kernel tuning differed between ranks and is done anew; it costs seconds",
    ),
    (re.compile(r"sps-table-path.*no-op"), "the SPS table is ignored on this model"),
)
"""Lines that look like trouble and are none."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """A cause and what to do.

    Attributes:
        id: the signature's id; `exit.*` where only the exit says anything, `traceback` for an unknown exception.
        line: the line that shows it, empty for an exit status.
        consequence: another rank failed first; look there.
    """

    id: str
    cause: str
    fix: str
    line: str = ""
    consequence: bool = False


def explain(
    lines: Iterable[str], exit_code: int | None, oom_killed: bool | None, *, sps_table_present: bool = False
) -> Explanation | None:
    """The most telling cause, or None when neither lines nor exit say anything.

    Args:
        lines: the container's last lines, oldest first, or Docker's own error text.
        exit_code: the container's, None while it runs or where unknown.
        oom_killed: Docker's own flag.
        sps_table_present: state/dspark_sps.json exists; named in a crash of graph capture.
    """
    last = deque(lines, maxlen=_MAX_LINES)
    texts = [split_prefix(piece).text[:_MAX_LINE] for line in last for piece in pieces(line)][-_MAX_LINES:]
    # the engine lists every option by name there, also those whose names look like trouble
    texts = [text for text in texts if not text.startswith("server_args=")]
    if oom_killed:
        return _OUT_OF_MEMORY
    own, *others = SIGNATURES
    named = _match(own, texts)
    if named:
        return named
    capture = _graph_capture(texts, sps_table_present)
    for signature in others:
        found = _match(signature, texts)
        # a traceback inside capture ends with lines that also look like a lost peer or a plain exception
        if found and not (capture and found.consequence):
            return found
    if capture:
        return capture
    exception = last_exception(texts)
    if exception and exit_code not in (None, 0):
        name, text = exception
        ended = name + (f": {text}" if text else "")
        return Explanation("traceback", f"the engine stopped with {ended}", "sparktui logs shows all of it", ended)
    return _from_exit(exit_code)


def _match(signature: Signature, texts: Sequence[str]) -> Explanation | None:
    # the last match is nearest to the end
    for text in reversed(texts):
        match = signature.pattern.search(text)
        if match:
            return Explanation(
                signature.id,
                _filled(signature.cause, match),
                _filled(signature.fix, match, "sparktui logs shows what came before"),
                text,
                signature.consequence,
            )
    return None


def _filled(template: str, match: re.Match[str], otherwise: str = "") -> str:
    groups = match.groups()
    if template == "{2}" and not groups[1]:
        return otherwise
    text = template
    for number, value in enumerate(groups, 1):
        text = text.replace(f"{{{number}}}", (value or "").strip() or "an unknown value")
    known = next((value for value in groups if value), "")
    text = text.replace("{any}", known.strip())
    return _LEFTOVER.sub("", text)


def _graph_capture(texts: Sequence[str], sps_table_present: bool) -> Explanation | None:
    """A traceback whose frames are in graph capture; batch sizes from the bar that was last drawn."""
    starts = [index for index, text in enumerate(texts) if text.startswith("Traceback ")]
    if not starts or not any(_CAPTURE.search(text) for text in texts[starts[0] :]):
        return None
    bars = [match for text in texts if (match := GRAPH_BAR.search(text))]
    where = f" (bs {bars[-1][1]}, {bars[-1][2]} of {bars[-1][3]} done)" if bars else ""
    stale = "a stale SPS table is present; it is ignored on this model, remove it (state/dspark_sps.json); "
    exception = last_exception(texts)
    return Explanation(
        "graphs.capture",
        f"crashed in graph capture{where}" + (f": {exception[0]}" if exception else ""),
        (stale if sps_table_present else "")
        + "free memory on this node; fewer MAX_RUNNING_REQUESTS; the same image on every node; "
        "speculation off (SPEC_ALGO=off) last",
        texts[starts[-1]],
    )


def last_exception(texts: Sequence[str]) -> tuple[str, str] | None:
    """Name and text of the last line that ends a traceback; one from before the server was up ended nothing."""
    for text in reversed(texts):
        if _UP.search(text):
            return None
        match = _EXCEPTION.fullmatch(text.strip())
        if match:
            return match[1], (match[2] or "").strip()
    return None


_OUT_OF_MEMORY = Explanation(
    "exit.oom",
    "the kernel ended the container: out of memory",
    "keep other programs and containers off this Spark, drop its page cache, then serve again",
)
_EXITS = {
    0: Explanation("exit.0", "the container ended by itself without an error", "sparktui logs shows its last lines"),
    70: Explanation(
        "exit.70",
        "the overlay could not be installed in an engine process",
        "sparktui logs shows which part; sparktui build",
    ),
    124: Explanation(
        "exit.124", "the engine was not ready in the time it was given", "sparktui logs; READY_TIMEOUT_S is the limit"
    ),
    125: Explanation("exit.125", "Docker could not start the container", "sparktui doctor checks this node's Docker"),
    126: Explanation("exit.126", "the image's program cannot be executed", "sparktui build"),
    127: Explanation("exit.127", "the image has no such program", "sparktui build"),
    134: Explanation("exit.134", "the engine aborted (SIGABRT)", "sparktui logs; often another rank failed first"),
    137: Explanation(
        "exit.137",
        "the container was killed (SIGKILL): out of memory on the host, or by hand",
        "see this node's memory: other programs, page cache, swap; then serve again",
    ),
    139: Explanation(
        "exit.139", "the engine crashed (segmentation fault)", "the same image on every node? sparktui doctor"
    ),
    143: Explanation("exit.143", "the container was stopped (SIGTERM)", "sparktui serve starts it again"),
}


def _from_exit(exit_code: int | None) -> Explanation | None:
    if exit_code is None:
        return None
    known = _EXITS.get(exit_code)
    if known:
        return known
    return Explanation(
        f"exit.{exit_code}", f"the container ended with status {exit_code}", "sparktui logs shows its last lines"
    )


def first_cause(explanations: Iterable[Explanation | None]) -> int | None:
    """Which of several ranks to blame: the first whose explanation is no consequence; then any that has one.

    Give them in the order in which the ranks ended.
    """
    listed = list(explanations)
    for index, each in enumerate(listed):
        if each and not each.consequence:
            return index
    return next((index for index, each in enumerate(listed) if each), None)


def information(line: str) -> str | None:
    """What a harmless line means; None for other lines."""
    return next((text for pattern, text in INFORMATION if pattern.search(line)), None)
