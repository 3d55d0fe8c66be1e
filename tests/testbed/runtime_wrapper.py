#!/usr/bin/env -S python3 -I -S
"""`runc` of a simulated Spark: makes the product's full `docker run` option list start on a machine without its powers.

The testbed's machine has no CAP_SYS_RESOURCE, so that capability and all rlimits leave the bundle; bind mounts that the
test asked for (an engine's environment, say) enter it. The launch spec itself is untouched. Then the real runc runs.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

CONFIG = Path("@NODE_FOLDER@/runtime.json")


def bundle_of(argv: list[str]) -> Path | None:
    for index, text in enumerate(argv):
        if text in ("--bundle", "-b"):
            return Path(argv[index + 1])
        if text.startswith("--bundle="):
            return Path(text.split("=", 1)[1])
    return None


def edit(spec: dict[str, Any], config: dict[str, Any]) -> None:
    process = spec["process"]
    process["rlimits"] = []
    for names in process.get("capabilities", {}).values():
        names[:] = [name for name in names if name not in config["drop_capabilities"]]
    spec["mounts"] += [
        {
            "destination": bind["target"],
            "type": "bind",
            "source": bind["source"],
            "options": ["rbind", "rprivate", "ro" if bind["read_only"] else "rw"],
        }
        for bind in config["binds"]
        if Path(bind["source"]).exists()
    ]
    known = {entry.split("=", 1)[0] for entry in process.get("env", [])}
    process.setdefault("env", []).extend(f"{k}={v}" for k, v in config["environment"].items() if k not in known)


def main() -> None:
    config = json.loads(CONFIG.read_text())
    bundle = bundle_of(sys.argv)
    if bundle is not None and "create" in sys.argv:
        path = bundle / "config.json"
        spec = json.loads(path.read_text())
        edit(spec, config)
        path.write_text(json.dumps(spec))
    os.execv(config["runc"], ["runc", *sys.argv[1:]])


if __name__ == "__main__":
    main()
