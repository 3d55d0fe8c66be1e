"""What watching for loops costs a token, after 1,000 and after 1,000,000 tokens, beside the same loop without it.

    python benchmarks/loop_detect.py [TOKENS]

Processor time of this thread, which a busy machine changes less than the clock; the best of several rounds. The aims:
at most 5 microseconds a token with all detectors, and after a million tokens at most 1.2 times that after a thousand.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "overlay"))

from spark_overlay.loop_detect import LoopDetector, LoopRules

AIM_US, AIM_RATIO = 5.0, 1.2
ROUND, ROUNDS, VOCABULARY = 5_000, 9, 129_280
RULES = {
    "identical": LoopRules(ngram=0, line_repeats=0),
    "ngram": LoopRules(identical=0, line_repeats=0),
    "lines": LoopRules(identical=0, ngram=0),
    "all": LoopRules(),
}
_PIECES = [b"\n" if number % 12 == 0 else b" word"[: 2 + number % 4] for number in range(VOCABULARY)]


def text(count: int, rng: random.Random) -> list[int]:
    """Half prose of any token, half of the few hundred that a text uses again and again."""
    return [rng.randrange(VOCABULARY if number % 2 else 400) for number in range(count)]


def microseconds(feed: Callable[[Sequence[int]], object], rng: random.Random) -> float:
    """A token's, fed one by one as the scheduler does."""
    best = float("inf")
    for _ in range(ROUNDS):
        tokens = [(token,) for token in text(ROUND, rng)]
        began = time.thread_time()
        for token in tokens:
            feed(token)
        best = min(best, (time.thread_time() - began) / ROUND * 1e6)
    return best


def nothing(tokens: Sequence[int]) -> None:
    for _ in tokens:
        pass


def main() -> int:
    many = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    rng = random.Random(17)
    print(f"{'no detector':12s} {microseconds(nothing, rng):6.2f} us a token")
    good = True
    for name, rules in RULES.items():
        taken = []
        for before in (1_000, many):
            detector = LoopDetector(rules, _PIECES.__getitem__)
            if detector.feed(text(before, rng)):
                raise SystemExit("the benchmark's text is a loop")
            taken.append(microseconds(detector.feed, rng))
        ratio = taken[1] / taken[0]
        print(f"{name:12s} {taken[0]:6.2f} us after 1,000, {taken[1]:6.2f} us after {many:,}: {ratio:.2f} times")
        good = good and (name != "all" or (max(taken) <= AIM_US and ratio <= AIM_RATIO))
    print(f"aims ({AIM_US:g} us, {AIM_RATIO:g} times): {'held' if good else 'NOT held'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
