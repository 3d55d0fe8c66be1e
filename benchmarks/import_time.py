"""How long `import sparktui.cli` and `sparktui --version` take, beside a bare interpreter in the same run.

    python benchmarks/import_time.py [REPEATS]

Prints medians, ratios and the processor time, which a busy machine changes less. The aim, 150 ms for
`sparktui --version`, is for an idle machine: elsewhere the ratio is what to compare.
"""

from __future__ import annotations

import resource
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


def milliseconds(code: str) -> tuple[float, float]:
    """Wall-clock and processor time of one interpreter."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall * 1000, (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def main() -> int:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in CASES}
    for _ in range(repeats):
        # Alternating, so that a busy moment meets all of them.
        for name, code in CASES.items():
            taken[name].append(milliseconds(code))
    wall = {name: statistics.median(each[0] for each in values) for name, values in taken.items()}
    cpu = {name: statistics.median(each[1] for each in values) for name, values in taken.items()}
    bare = "python -c pass"
    for name in CASES:
        ratio = f"{wall[name] / wall[bare]:5.2f} x"
        print(
            f"{name:<22} {wall[name]:7.1f} ms  {ratio}   processor {cpu[name]:6.1f} ms  {cpu[name] / cpu[bare]:5.2f} x"
        )
    print(f"aim: {AIM_MS:.0f} ms; {'met' if wall['sparktui --version'] <= AIM_MS else 'not met in this run'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
