"""Run by the engine's Python: all setups, faults and refusals.

`python -m tests.engine.v41 FOLDER` prints one JSON object; FOLDER is scratch space.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from tests.engine.v41 import checkpoint, padding_checks, ranks
from tests.engine.v41.faults import FAULTS, caught, planted
from tests.engine.v41.ranks import Setup

PADDED = {"num_attention_heads": 96, "o_groups": 12}
DRAFT_PADDED = PADDED | {"dspark_n_routed_experts": 129}
PAD, ROWS = "tp_padding", "engram_rows"
REVISION = "1bae0e1c0ffee"
PLAIN = Setup("TP1", 1)
FAULTY = Setup("TP3, EP3", 3, 3, DRAFT_PADDED, (PAD,))
SETUPS: tuple[Setup, ...] = (
    Setup("TP1, the engine's CPU classes", 1, spark_classes=False),
    Setup("padded sizes at TP1", 1, 1, DRAFT_PADDED, padded_alone=True),
    Setup("TP3, EP1", 3, 1, PADDED, (PAD,)),
    FAULTY,
    Setup("TP4, EP1", 4, 1, armed=(PAD,)),
    Setup("TP4, EP4", 4, 4, armed=(PAD,)),
)
PACKED: dict[str, Setup] = {
    "TP1": Setup("TP1, packed rows", 1, armed=(ROWS,)),
    "TP3, EP1": Setup("TP3, EP1, packed rows", 3, 1, PADDED, (PAD, ROWS)),
    "TP3, EP3": Setup("TP3, EP3, packed rows", 3, 3, DRAFT_PADDED, (PAD, ROWS)),
    "TP4, EP1": Setup("TP4, EP1, packed rows", 4, 1, {}, (PAD, ROWS)),
}
"""By the name of the setup that it has to equal bit for bit."""
REFUSED: tuple[Setup, ...] = (
    Setup("the engine alone, padded sizes", 3, 1, PADDED),
    Setup("the engine alone, sizes as they are", 3, 1),
    Setup("padded heads, draft experts as they are", 3, 3, PADDED, (PAD,)),
    Setup("heads padded to another size", 3, 1, {"num_attention_heads": 192, "o_groups": 24}, (PAD,)),
)


@contextlib.contextmanager
def counted_copies(passed: dict[str, int]) -> Iterator[None]:
    """How many tensors the padding handed on as the very same objects, and how many not."""
    module = importlib.import_module("spark_overlay.adapters.tp_padding")
    original = module.pad

    def pad(weights: Any, *rest: Any) -> Iterator[tuple[str, Any]]:
        given: dict[str, Any] = {}

        def remembered() -> Iterator[tuple[str, Any]]:
            for name, tensor in weights:
                given[name] = tensor
                yield name, tensor

        for name, tensor in original(remembered(), *rest):
            kind = "made" if name not in given else "same" if tensor is given.pop(name) else "padded"
            passed[kind] = passed.get(kind, 0) + 1
            yield name, tensor

    module.pad = pad
    try:
        yield
    finally:
        module.pad = original


def work(setup: Setup, folder: Path, rank: int) -> dict[str, Any]:
    """One rank's answer: logits by step, its padding, and in FAULTY what each fault does to both."""
    from sglang.srt.runtime_context import get_parallel

    from tests.engine.v41 import forward

    passed: dict[str, int] = {}
    with counted_copies(passed) if PAD in setup.armed else contextlib.nullcontext():
        models = ranks.load(folder, rank)
    ep_rank = get_parallel().moe_ep_rank
    logits = forward.all_steps(models)
    found = padding_checks.look(models, ep_rank)
    answer = {"logits": logits, "faults": found.faults, "padded": found.padded, "converted": found.converted}
    if setup == FAULTY:
        answer["planted"], right = {}, forward.all_steps(models, long=False)
        for fault in FAULTS:
            with planted(fault, models):
                tensors = padding_checks.look(models, ep_rank).faults
                answer["planted"][fault.name] = caught(right, forward.all_steps(models, long=False)), tensors
        answer["after"] = caught(logits, forward.all_steps(models)), padding_checks.look(models, ep_rank).faults
    return answer | {"passed": passed}


def refused(setup: Setup, folder: Path, rank: int) -> None:
    ranks.load(folder, rank)


def differences(plain: dict[str, torch.Tensor], answers: list[dict[str, Any]]) -> dict[str, Any]:
    """By step: the largest difference, whether every argmax is equal, and whether all ranks say the same bits."""
    return {
        step: {
            "difference": float((logits - answers[0]["logits"][step]).abs().max()),
            "argmax equal": bool(torch.equal(logits.argmax(-1), answers[0]["logits"][step].argmax(-1))),
            "ranks equal": all(torch.equal(each["logits"][step], answers[0]["logits"][step]) for each in answers),
        }
        for step, logits in plain.items()
    }


def padding(answers: list[dict[str, Any]]) -> dict[str, Any]:
    return {key: [each[key] for each in answers] for key in ("faults", "padded", "converted", "passed")}


def pack(folder: Path, out: Path, tp: int) -> None:
    from spark_overlay import engram

    for rank in range(tp):
        words = ["pack", "--source", str(folder), "--out", str(out), "--rank", str(rank), "--tp", str(tp)]
        words += ["--revision", REVISION]
        with contextlib.redirect_stdout(io.StringIO()) as said:
            status = engram.main(words)
        assert status == 0, said.getvalue()


def report(scratch: Path) -> dict[str, Any]:
    """Everything, as data."""
    folder, packed = scratch / "checkpoint", scratch / "packed"
    checkpoint.write(folder)
    for tp in sorted({setup.tp for setup in PACKED.values()}):
        pack(folder, packed, tp)
    os.environ["DSV41_PACKED_DIR"] = str(packed)
    found: dict[str, Any] = {"machine": f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}"}
    plain = ranks.run(PLAIN, folder, work)
    base = plain[0]["logits"]
    text, shown = base["prefill"], base["picture"]
    found["picture"] = {
        "its own": float((text - shown)[1].abs().max()),
        "the other": float((text - shown)[0].abs().max()),
    }
    found["padding"] = {PLAIN.name: padding(plain)}
    found["differences"], found["packed"], stock = {}, {}, {PLAIN.name: base}
    for setup in SETUPS:
        answers = ranks.run(setup, folder, work)
        found["differences"][setup.name] = differences(base, answers)
        found["padding"][setup.name] = padding(answers)
        stock[setup.name] = answers[0]["logits"]
        if setup == FAULTY:
            found["planted"] = {
                fault.name: {
                    "logits": answers[0]["planted"][fault.name][0],
                    "tensors": [said for each in answers for said in each["planted"][fault.name][1]],
                }
                for fault in FAULTS
            }
            found["after"] = [each["after"] for each in answers]
    for name, setup in PACKED.items():
        found["packed"][name] = differences(stock[name], ranks.run(setup, folder, work))
    found["refused"] = {}
    for setup in REFUSED:
        try:
            ranks.run(setup, folder, refused)
            found["refused"][setup.name] = "loaded"
        except RuntimeError as error:
            found["refused"][setup.name] = str(error)
    return found


if __name__ == "__main__":
    print(json.dumps(report(Path(sys.argv[1]))))
