"""Write the measured part of docs/padding.md: `python -m tests.engine.v41.page`, with the project's Python."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.engine.v41 import bench

PAGE = bench.ROOT / "docs" / "padding.md"
BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"


def measured(found: dict[str, Any], router: dict[str, Any]) -> str:
    """Both tables and the router's line, as Markdown."""
    return "\n".join(_lines(found, router)) + "\n"


def _lines(found: dict[str, Any], router: dict[str, Any]) -> Iterator[str]:
    steps = list(next(iter(found["differences"].values())))
    same = all(step["argmax equal"] for each in found["differences"].values() for step in each.values())
    yield (
        f"Seen on {found['machine']}, SGLang 0.5.23, fp32 activations. Largest difference of logits; "
        f"the largest logit is {'the same one everywhere' if same else 'NOT the same one everywhere'}."
    )
    yield ""
    yield f"| compared with TP1 | {' | '.join(steps)} |"
    yield "|---|" + "---|" * len(steps)
    for setup, each in found["differences"].items():
        yield _row(setup, each, steps)
    for setup, each in found["packed"].items():
        yield _row(f"{setup}: packed Engram rows against tables in memory", each, steps)
    yield ""
    padding = found["padding"]["TP3, EP1"]
    yield (
        f"FP8 layers that convert to e8m0, by rank of three: {padding['converted']}; heads that are padding: "
        f"{[each['heads'] for each in padding['padded']]}. A picture moves its own request's logits by "
        f"{_figure(found['picture']['its own'])}, the other's by {_figure(found['picture']['the other'])}."
    )
    yield ""
    rows, chosen = router["as padded"]["rows"], router["as padded"]["padding chosen"]
    yield (
        f"SGLang's router kernel, interpreted, {rows:,} rows: 129 experts do bit for bit as 128 do: "
        f"{'yes' if router['as padded']['equal'] else 'NO'}; the padding {chosen} times. "
        f"With a bias of 0 in place of -1e30 they choose it in {router['bias 0']['padding chosen']:,} rows."
    )
    yield ""
    yield "| fault planted at TP3, EP3 | logits differ by | the tensors' own check |"
    yield "|---|---|---|"
    for fault, each in found["planted"].items():
        said = sorted({text.split(": ", 1)[1] for text in each["tensors"]})
        yield f"| {fault} | {_figure(each['logits'])} | {'; '.join(said) or 'not seen'} |"


def _row(name: str, each: dict[str, Any], steps: list[str]) -> str:
    return f"| {name} | {' | '.join(_figure(each[step]['difference']) for step in steps)} |"


def _figure(value: float) -> str:
    if value != value:
        return "NaN"
    return "0" if value == 0 else f"{value:.1e}" if value < 0.01 else f"{value:.2g}"


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        text = measured(bench.run(Path(scratch)), bench.run_router())
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    PAGE.write_text(before + BEGIN + text + END + rest.split(END)[1], encoding="utf-8")


if __name__ == "__main__":
    main()
