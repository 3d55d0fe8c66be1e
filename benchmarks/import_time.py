"""How long `import sparktui.cli` and `sparktui --version` take, beside a bare interpreter in the same run.

    python benchmarks/import_time.py [REPEATS]

Prints medians and ratios. The aim: 150 ms for both together on an idle machine, so the ratio is what to compare.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

CASES = {
    "python -c pass": "pass",
    "import sparktui.cli": "import sparktui.cli",
    "sparktui --version": "import sparktui.cli, sys; sys.exit(sparktui.cli.main(['--version']))",
}
AIM_MS = 150.0


def milliseconds(code: str) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - started) * 1000


def main() -> int:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    taken: dict[str, list[float]] = {name: [] for name in CASES}
    for _ in range(repeats):
        # Alternating, so that a busy moment meets all of them.
        for name, code in CASES.items():
            taken[name].append(milliseconds(code))
    medians = {name: statistics.median(values) for name, values in taken.items()}
    bare = medians["python -c pass"]
    for name, value in medians.items():
        print(f"{name:<22} {value:7.1f} ms   {value / bare:5.2f} x   (best {min(taken[name]):.1f} ms)")
    print(f"aim: {AIM_MS:.0f} ms; {'met' if medians['sparktui --version'] <= AIM_MS else 'not met in this run'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
