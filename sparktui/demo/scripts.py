"""Which of the product's scripts a text is, and what a simulated node answers. A script that nobody knows is an error.

The scripts are recognised by being the product's own constants: whoever adds one has to add its answer here, and the
test that runs the whole chain says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sparktui.demo.faults import DOCKER_HANGS
from sparktui.demo.machine import DISK_BYTES, Machine
from sparktui.demo.memory import apps_text, gpu_row, meminfo_text, memory_of
from sparktui.demo.network import addresses_text, discovery_text, fabric_text, said_text
from sparktui.demo.programs import sha256_of
from sparktui.readings.checkpoint import INDEX_NAME, parse_index
from sparktui.readings.checkpoint_listing import PARTIAL_SUFFIX
from sparktui.readings.nvidia_smi import GPU_FIELDS, GPU_FIELDS_SHORT
from sparktui.remote import checkpoint_folder, docker_access
from sparktui.steps import checkpoint_probe, discovery, fabric_probe, serve_preflight, stop, views
from sparktui.steps.doctor_checks import probe

if TYPE_CHECKING:
    from sparktui.demo.world import World

Answer = tuple[int, str]
"""Exit status and standard output."""
Values = Mapping[str, str]


class UnknownOnDemo(RuntimeError):
    """The simulated cluster has no answer to what the product asked: a fault of the demo, never of a user."""


def script_name(text: str) -> str:
    """The name of a script of the product.

    Raises:
        UnknownOnDemo: it is none that the demo knows; names its beginning.
    """
    known = {
        probe.probe_script(): "probe",
        checkpoint_probe.CHECKPOINT_SCRIPT: "checkpoint",
        checkpoint_probe.IDENTITY_SCRIPT: "identity",
        fabric_probe.FABRIC_SCRIPT: "fabric",
        serve_preflight._NODE_SCRIPT: "node",
        serve_preflight._MISSING_PATHS: "missing",
        stop._LEFTOVERS: "leftovers",
        stop._FREE: "free",
        views._MAKE_FOLDERS: "folders",
        views._FOLDER_THERE: "there",
        docker_access.ACCESS_PROBE: "access",
        discovery.DISCOVERY_SCRIPT: "discovery",
        discovery.NODE_SCRIPT: "said",
    }
    name = known.get(text)
    if name is None:
        begin = " / ".join(text.strip().splitlines()[:3])
        raise UnknownOnDemo(f"the simulated cluster knows no answer to this script: {begin[:300]}")
    return name


def answer(world: World, machine: Machine, name: str, values: Values) -> Answer:
    """What the node prints."""
    return ANSWERS[name](world, machine, values)


def _probe(world: World, machine: Machine, values: Values) -> Answer:
    out = []
    for part, _ in probe._parts():
        if part not in PARTS:
            raise UnknownOnDemo(f"the simulated cluster knows no answer to the probe's part {part}")
        status, text = PARTS[part](world, machine, values)
        out.append(f"@{part}\n{text}\n@{part}.exit\n{status}\n")
    return 0, "".join(out)


def _checkpoint(world: World, machine: Machine, values: Values) -> Answer:
    folder = Path(values.get("MODEL_DIR", ""))
    if not machine.is_head or not world.home.holds(folder) or not folder.is_dir():
        return 0, "@checkpoint.folder\nabsent\n"
    sizes = checkpoint_folder.scan(folder)
    rows = ["@checkpoint.folder", "present", "@checkpoint.files"]
    rows += [f"{size}\t{name}" for name, size in sizes.final_bytes.items()]
    rows += ["@checkpoint.parts"]
    rows += [f"{size}\t{name}{PARTIAL_SUFFIX}" for name, size in sizes.partial_bytes.items()]
    record = checkpoint_folder.read_record(folder)
    rows += ["@checkpoint.record", record.to_json() if record else ""]
    index = parse_index(checkpoint_folder.read_index(folder) or "")
    rows += ["@checkpoint.index", *(f'"{name}"' for name in (index.files if index else ()))]
    return 0, "\n".join(rows) + "\n"


def _identity(world: World, machine: Machine, values: Values) -> Answer:
    folder = Path(values.get("MODEL_DIR", ""))
    if not machine.is_head or not world.home.holds(folder) or not folder.is_dir():
        return 0, ""
    rows = [f"{sha256_of(folder / name)}  {name}" for name in ("config.json", INDEX_NAME)]
    sizes = checkpoint_folder.scan(folder).final_bytes
    rows += [f"{size} 0.0 {name}" for name, size in sorted(sizes.items()) if name.endswith(".safetensors")]
    return 0, "\n".join(rows) + "\n"


def _node(world: World, machine: Machine, values: Values) -> Answer:
    rows = ["infiniband"]
    rows += [f"app {line}" for line in apps_text(world, machine).splitlines()]
    rows += ["ss", "port 0.0.0.0:22", "port 127.0.0.1:631"]
    engine = machine.engine()
    if engine is not None and machine.is_head:
        rows.append(f"port 127.0.0.1:{engine.whole('SERVER_PORT', 8888)}")
    return 0, "\n".join(rows) + "\n"


def _missing(world: World, machine: Machine, values: Values) -> Answer:
    paths = [path for path in values.get("paths", "").split("\n") if path]
    lacking = [path for path in paths if machine.is_head and world.home.holds(path) and not Path(path).exists()]
    return 0, "".join(f"{path}\n" for path in lacking)


def _folders(world: World, machine: Machine, values: Values) -> Answer:
    for path in values.values():
        # Elsewhere than in the demo's folder nothing is ever made.
        if machine.is_head and world.home.holds(path):
            Path(path).mkdir(parents=True, exist_ok=True)
    return 0, ""


def _there(world: World, machine: Machine, values: Values) -> Answer:
    path = values.get("folder", "")
    # The head alone has a copy of the checkpoint.
    return (0 if machine.is_head and world.home.holds(path) and Path(path).is_dir() else 1), ""


def _access(world: World, machine: Machine, values: Values) -> Answer:
    socket = values.get("socket", "/var/run/docker.sock")
    said = "Cannot connect to the Docker daemon: timeout" if DOCKER_HANGS in world.faults(machine.name) else "28.5.1"
    return 0, (
        f"user=nvidia\nsession=nvidia sudo docker\naccount=nvidia sudo docker\nsocket={socket}\nexists=yes\n"
        f"group=docker\nis_socket=yes\nallowed=yes\ncli=yes\nengine=yes\nsaid={said}\n"
    )


def _nothing(world: World, machine: Machine, values: Values) -> Answer:
    return 0, ""


def df_text(world: World, machine: Machine) -> str:
    """`df -PB1` of the root file system."""
    left = world.disk_left(machine)
    return (
        "Filesystem 1-blocks Used Available Capacity Mounted on\n"
        f"/dev/nvme0n1p2 {DISK_BYTES} {DISK_BYTES - left} {left} {100 * (DISK_BYTES - left) // DISK_BYTES}% /\n"
    )


def _engram(world: World, machine: Machine, values: Values) -> Answer:
    return 0, "".join(f"{size}\t{name}\n" for name, size in sorted(machine.packed.items()))


ANSWERS: dict[str, Callable[[World, Machine, Values], Answer]] = {
    "probe": _probe,
    "checkpoint": _checkpoint,
    "identity": _identity,
    "fabric": lambda world, machine, _: (0, fabric_text(world, machine)),
    "node": _node,
    "missing": _missing,
    "leftovers": _nothing,
    "free": _nothing,
    "folders": _folders,
    "there": _there,
    "access": _access,
    "discovery": lambda world, machine, _: (0, discovery_text(world, machine)),
    "said": lambda world, machine, _: (0, said_text(world, machine)),
}

PARTS: dict[str, Callable[[World, Machine, Values], Answer]] = {
    "uname": lambda _, machine, __: (0, f"Linux {machine.hostname} 6.17.0-1018-nvidia aarch64"),
    "release": lambda *_: (0, 'DGX_NAME="DGX Spark"\nDGX_SWBUILD_VERSION="7.2.3"\nDGX_OTA_VERSION="7.4.0"'),
    "id": lambda *_: (0, "uid=1000(nvidia) gid=1000(nvidia) groups=1000(nvidia),27(sudo),988(docker)"),
    "gpu": lambda world, machine, _: (0, gpu_row(world, machine, GPU_FIELDS)),
    "gpu.short": lambda world, machine, _: (0, gpu_row(world, machine, GPU_FIELDS_SHORT)),
    "gpu.apps": lambda world, machine, _: (0, apps_text(world, machine)),
    "docker.choice": lambda *_: (0, "DOCKER_HOST\t\nDOCKER_CONTEXT\t\nconfig\t"),
    "cdi": lambda *_: (0, 'mode = "auto"'),
    "fabric": lambda world, machine, _: (0, fabric_text(world, machine)),
    "addresses": lambda world, machine, _: (0, addresses_text(world, machine)),
    "meminfo": lambda world, machine, _: (0, meminfo_text(memory_of(world, machine))),
    "minfree": lambda *_: (0, "45056"),
    "caches": _nothing,
    "df.model": lambda world, machine, _: (0, df_text(world, machine)),
    "df.engram": lambda world, machine, _: (0, df_text(world, machine)),
    "df.docker": lambda world, machine, _: (0, df_text(world, machine)),
    "engram": _engram,
    "checkpoint": _checkpoint,
    "identity": _identity,
}


def run_answer(world: World, machine: Machine, argv: list[str]) -> Answer:
    """A single command.

    Raises:
        UnknownOnDemo: none that the demo knows.
    """
    from sparktui.demo.network import route_text

    words = [word for word in argv if not word.startswith("unix://")]
    match words:
        case ["true"]:
            return 0, ""
        case ["df", *_]:
            return 0, df_text(world, machine)
        case ["ip", "route", "get", wanted]:
            route = route_text(world, machine, wanted)
            return (0, route) if route is not None else (2, "")
        case ["nvidia-smi", *options] if any(each.startswith("--query-gpu=") for each in options):
            fields = next(each for each in options if each.startswith("--query-gpu=")).partition("=")[2]
            return 0, gpu_row(world, machine, tuple(fields.split(",")))
        case ["nvidia-smi", *options] if any(each.startswith("--query-compute-apps=") for each in options):
            return 0, apps_text(world, machine)
        case ["docker", "--host", "save", *_] if "--output" in words:
            from sparktui.demo.images import save_to_file

            return save_to_file(world, machine, words)
        case ["rm", *_] | ["mkdir", *_]:
            return 0, ""
    raise UnknownOnDemo(f"the simulated cluster knows no answer to this command: {' '.join(argv)[:300]}")
