"""How long from exec to the first painted frame: our wizard beside an empty Textual app, in one run, by turns.

    python benchmarks/first_paint.py [--rounds 10] [--size 120x40] [--json]

Each start is a process of its own in a pseudo-terminal. The frame is there when its first word has been written: the
line on top for both. The wizard starts without settings of its own, so that no node is asked. Wall clock and
processor time; the ratio of the medians is the figure (reach: 1.5 at most).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.in_a_terminal import InTerminal

CHILD = str(Path(__file__).with_name("monitor_child.py"))
REACH = 1.5
LONGEST_SECONDS = 60.0
SETTINGS = """\
HEAD_IP=10.0.0.1
WORKER_IPS="127.0.0.2 127.0.0.3"
WORKER_HOSTS="spark2 spark3"
MODEL_DIR=/srv/DeepSeek-V4.1-Flash-1017
"""


def started(argv: list[str], word: bytes, columns: int, rows: int) -> tuple[float, float]:
    """(milliseconds until the word was painted, milliseconds of processor until then)."""
    began = time.monotonic()
    program = InTerminal(argv, columns, rows)
    try:
        if not program.read(LONGEST_SECONDS, until=word):
            raise SystemExit(f"{argv}: {word!r} never came:\n{program.seen.decode(errors='replace')[-2000:]}")
        return (time.monotonic() - began) * 1000, program.processor_seconds() * 1000
    finally:
        program.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--size", default="120x40")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    columns, rows = map(int, options.size.split("x"))
    with tempfile.TemporaryDirectory() as folder:
        env_file = Path(folder) / ".env"
        env_file.write_text(SETTINGS)
        cases = {
            "wizard": ([sys.executable, "-m", "sparktui", "--env-file", str(env_file)], b" sparktui"),
            "empty app": ([sys.executable, CHILD, "empty"], b"empty"),
        }
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
        for number in range(options.rounds + 1):
            for name, (argv, word) in cases.items():
                pair = started(argv, word, columns, rows)
                if number:  # the first round fills the page cache and writes byte code
                    taken[name].append(pair)
    figures = {
        name: {
            "median_ms": statistics.median(wall for wall, _ in pairs),
            "least_ms": min(wall for wall, _ in pairs),
            "processor_ms": statistics.median(processor for _, processor in pairs),
        }
        for name, pairs in taken.items()
    }
    ratio = figures["wizard"]["median_ms"] / figures["empty app"]["median_ms"]
    if options.json:
        print(json.dumps({**figures, "ratio": ratio}))
        return 0
    for name, values in figures.items():
        print(
            f"{name:<10} first frame {values['median_ms']:6.0f} ms (least {values['least_ms']:.0f})"
            f"   processor {values['processor_ms']:.0f} ms"
        )
    print(f"ratio {ratio:.2f} (reach {REACH}: {'met' if ratio <= REACH else 'not met in this run'})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
