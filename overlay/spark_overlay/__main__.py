"""`python -m spark_overlay verify [--source-allowed] [--engine-may-lack] | check-model … | adapters`."""

from __future__ import annotations

import sys


def main() -> int:
    match sys.argv[1:]:
        case ["verify", *rest] if set(rest) <= {"--source-allowed", "--engine-may-lack"}:
            from spark_overlay.verify import main as verify

            return verify(rest)
        case ["check-model", *rest]:
            from spark_overlay.check_model import main as check_model

            return check_model(rest)
        case ["adapters"]:
            from spark_overlay.adapters_page import page
            from spark_overlay.ledger import LEDGER

            print(page(LEDGER), end="")
            return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
