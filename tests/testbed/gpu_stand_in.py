#!/usr/bin/env -S python3 -I -S
"""`nvidia-smi` of a simulated Spark: answers the queries that work on a GB10 and refuses the rest as the real one does.

Reads the node's `gpu.json`, which a test rewrites. Run inside a node by its own name.
"""

import csv
import json
import sys
import time
from pathlib import Path

STATE = Path("@NODE_FOLDER@/gpu.json")
DEFAULT_STATE = {
    "driver": "580.142",
    "uuid": "GPU-7f3c9a52-0000-4000-8000-000000000001",
    "fail": "",
    "hang_seconds": 0,
    "apps": [],
    "fields": {
        "index": "0",
        "count": "1",
        "name": "NVIDIA GB10",
        "gpu_name": "NVIDIA GB10",
        "pci.bus_id": "0000000F:01:00.0",
        "gpu_bus_id": "0000000F:01:00.0",
        "compute_cap": "12.1",
        "memory.total": "[N/A]",
        "memory.used": "[N/A]",
        "memory.free": "[N/A]",
        "utilization.gpu": "2 %",
        "utilization.memory": "0 %",
        "temperature.gpu": "43",
        "temperature.memory": "N/A",
        "power.draw": "12.61 W",
        "power.limit": "[N/A]",
        "fan.speed": "[N/A]",
        "clocks.sm": "2418 MHz",
        "clocks.current.sm": "2418 MHz",
        "clocks.gr": "2418 MHz",
        "clocks.current.graphics": "2418 MHz",
        "clocks.max.sm": "3003 MHz",
        "clocks.mem": "[N/A]",
        "clocks.max.mem": "[N/A]",
        "pstate": "P0",
        "persistence_mode": "Enabled",
        "pcie.link.gen.current": "1",
        "pcie.link.gen.max": "1",
        "pcie.link.width.current": "1",
        "pcie.link.width.max": "16",
        "clocks_event_reasons.active": "0x0000000000000000",
        "clocks_event_reasons.hw_thermal_slowdown": "Not Active",
        "clocks_event_reasons.sw_thermal_slowdown": "Not Active",
        "clocks_event_reasons.hw_slowdown": "Not Active",
        "clocks_event_reasons.hw_power_brake_slowdown": "Not Active",
        "clocks_event_reasons.sw_power_cap": "Not Active",
    },
}

TABLE = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI {driver:<22} Driver Version: {driver:<14} CUDA Version: 13.0     |
+-----------------------------------------+------------------------+----------------------+
|   0  NVIDIA GB10                    On  |   0000000F:01:00.0 Off |                  N/A |
| N/A   {heat}C    {pstate}             {watts:>4}W /  N/A  | Not Supported          | {busy:>6}%      Default |
+-----------------------------------------+------------------------+----------------------+
"""


def answer_query(names: list[str], rows: list[dict[str, str]], options: list[str]) -> int:
    for name in names:
        if rows and name not in rows[0]:
            print(f'Field "{name}" is not a valid field to query.\n')
            return 2
    writer = csv.writer(sys.stdout, delimiter=",", lineterminator="\n", quoting=csv.QUOTE_NONE, escapechar="\\")
    if "noheader" not in options:
        print(", ".join(names))
    for row in rows:
        values = [row[name] for name in names]
        if "nounits" in options:
            values = [
                value.removesuffix(" %").removesuffix(" W").removesuffix(" MHz").removesuffix(" MiB")
                for value in values
            ]
        writer.writerow([values[0], *(f" {value}" for value in values[1:])])
    return 0


def main(argv: list[str]) -> int:
    state = json.loads(STATE.read_text())
    if state["hang_seconds"]:
        time.sleep(state["hang_seconds"])
    if state["fail"]:
        print(state["fail"])
        return 9
    fields = dict(state["fields"], driver_version=state["driver"], uuid=state["uuid"], gpu_uuid=state["uuid"])
    for name in list(fields):
        if name.startswith("clocks_event_reasons."):
            fields[name.replace("event", "throttle")] = fields[name]
    options = next((text.split("=", 1)[1].split(",") for text in argv if text.startswith("--format=")), [])
    for text in argv:
        if text.startswith("--query-gpu="):
            return answer_query(text.split("=", 1)[1].replace(" ", "").split(","), [fields], options)
        if text.startswith("--query-compute-apps="):
            rows = [
                {
                    "pid": str(app["pid"]),
                    "process_name": app["name"],
                    "name": app["name"],
                    "used_memory": "[N/A]" if app["mib"] is None else f"{app['mib']} MiB",
                    "used_gpu_memory": "[N/A]" if app["mib"] is None else f"{app['mib']} MiB",
                    "gpu_uuid": state["uuid"],
                    "gpu_name": fields["name"],
                }
                for app in state["apps"]
            ]
            return answer_query(text.split("=", 1)[1].replace(" ", "").split(","), rows, options)
    if "-L" in argv or "--list-gpus" in argv:
        print(f"GPU 0: {fields['name']} (UUID: {state['uuid']})")
        return 0
    if "--version" in argv:
        print(f"NVIDIA-SMI version  : {state['driver']}\nNVML version        : {state['driver']}")
        print(f"DRIVER version      : {state['driver']}\nCUDA Version        : 13.0")
        return 0
    watts = round(float(fields["power.draw"].split()[0]))
    busy = fields["utilization.gpu"].split()[0]
    shown = {"heat": fields["temperature.gpu"], "pstate": fields["pstate"], "watts": watts, "busy": busy}
    print(TABLE.format(driver=state["driver"], **shown), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
