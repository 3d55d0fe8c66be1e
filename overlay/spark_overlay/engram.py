"""`python3 -m spark_overlay.engram pack|info|check`: prints JSON lines and nothing else on standard output.

Exit status: 0 done · 1 it could not be done (an `error` line says what and what to do) · 2 usage.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
from pathlib import Path
from typing import Any

from spark_overlay.engram_file import FileError
from spark_overlay.engram_layout import LayoutError, layout_from_config

ROWS = 1000
_REVISION = re.compile(r"[0-9A-Za-z._-]{1,64}")


def report(event: dict[str, Any]) -> None:
    print(json.dumps(event, separators=(",", ":")), flush=True)


def _pack(options: argparse.Namespace) -> int:
    from spark_overlay import engine_ranges, engram_pack
    from spark_overlay.page_maker import page_maker
    from spark_overlay.safetensors_source import read_config

    if not _REVISION.fullmatch(options.revision):
        raise FileError(f"revision {options.revision!r} is no commit", "give the checkpoint's commit hash")
    config = read_config(options.source)
    layout = layout_from_config(config)
    if layout is None:
        report({"event": "skipped", "file": None, "bytes": 0, "reason": "config.json names no Engram layer"})
        return 0
    report({"event": "note", "text": engine_ranges.agree(config, layout, options.tp)})
    options.out.mkdir(parents=True, exist_ok=True)
    jobs = engram_pack.plan(options.source, options.out, layout, options.rank, options.tp, options.revision)
    open_jobs = []
    for job in jobs:
        if engram_pack.is_done(job):
            report(
                {"event": "skipped", "layer": job.header.layer, "file": str(job.path), "bytes": job.header.file_bytes}
            )
            if not engram_pack.drop_second_name(job) and job.partial.exists():
                text = f"{job.partial} is left over beside the finished file; nothing needs it"
                report({"event": "note", "state": "warn", "text": text})
        else:
            open_jobs.append(job)
    if open_jobs:
        engram_pack.check_space(open_jobs, options.out)
        report({"event": "note", "text": page_maker().stated})
    for job in open_jobs:
        engram_pack.pack(job, report)
        report({"event": "done", "layer": job.header.layer, "file": str(job.path), "bytes": job.header.file_bytes})
    return 0


def _info(options: argparse.Namespace) -> int:
    from spark_overlay.engram_check import describe

    report(describe(options.file))
    return 0


def _check(options: argparse.Namespace) -> int:
    from spark_overlay.engram_check import check

    result = check(
        options.file, options.source, options.rows, pages=options.pages, revision=options.revision,
        seed=options.seed, report=report,
    )  # fmt: skip
    good = not result["bad_pages"] and not result["bad_rows"]
    report({"event": "checked" if good else "error", **result, **({} if good else _bad(result))})
    return 0 if good else 1


def _bad(result: dict[str, Any]) -> dict[str, str]:
    file = result["file"]
    return {"what": f"{file} is damaged at {result['first_bad']}", "fix": f"move {file} away, then sparktui pack"}


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is less than 0")
    return value


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="spark_overlay.engram")
    verbs = parser.add_subparsers(dest="verb", required=True)
    pack = verbs.add_parser("pack", help="make this rank's files, resuming what is there")
    pack.add_argument("--source", type=Path, required=True, help="checkpoint folder")
    pack.add_argument("--out", type=Path, required=True)
    pack.add_argument("--rank", type=_count, required=True)
    pack.add_argument("--tp", type=_count, required=True)
    pack.add_argument("--revision", required=True, help="the checkpoint's commit")
    pack.set_defaults(run=_pack)
    info = verbs.add_parser("info", help="print a file's header")
    info.add_argument("file", type=Path)
    info.set_defaults(run=_info)
    check = verbs.add_parser("check", help="verify a file's header, length and every page")
    check.add_argument("file", type=Path)
    check.add_argument("--source", type=Path, help="a checkpoint folder: header and rows must be its own")
    check.add_argument("--rows", type=_count, default=ROWS, help=f"random rows compared with --source ({ROWS})")
    check.add_argument("--pages", type=_count, help="only this many random pages instead of all")
    check.add_argument("--revision", default="", help="the commit that the file must be of")
    check.add_argument("--seed", type=_count, help="the seed that a check printed: the same pages and rows again")
    check.set_defaults(run=_check)
    options = parser.parse_args(argv)
    # As pid 1 of a container an unhandled SIGTERM would be ignored; packing resumes, so leaving at once is fine.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    try:
        return int(options.run(options))
    except FileError as error:
        report({"event": "error", "what": error.what, "fix": error.fix})
    except LayoutError as error:
        report(
            {
                "event": "error",
                "what": str(error),
                "fix": "compare config.json with the checkpoint's own, then pack again",
            }
        )
    except OSError as error:
        report(
            {"event": "error", "what": str(error), "fix": "check the disk and the share of this node, then pack again"}
        )
    return 1


if __name__ == "__main__":
    sys.exit(main())
