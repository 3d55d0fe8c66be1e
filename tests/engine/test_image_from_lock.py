"""The real Dockerfile on a base with an older engine: brought to the x86-64 lock by hashes, labelled, started, answers.

What is built is what ships: the product's own context and command line. `--network host` is added to that line, because
the Engine of this test has no bridge, and nothing else. How pip reaches its index is read from this
machine and enters the build's containers alone.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from sparktui.engine.launch import launch_specs
from sparktui.envfile.fixes import quoted
from sparktui.readings.image_identity import BASE_LABEL, NFS_LABEL, OVERLAY_LABEL
from sparktui.settings import Settings, parse_settings
from sparktui.shipped import shipped
from sparktui.steps.build import build_argv
from sparktui.steps.overlay_content import content_hash
from tests.engine import engine_env, pip_settings
from tests.engine.host_network_engine import HostNetworkEngine
from tests.engine.lock_image_base import BASE, LEFT_OVER, RECIPE, ensure_base
from tests.engine.lock_image_cache import LockImageCache
from tests.testbed import compiler
from tests.testbed.processes import cgroup_dirs

pytestmark = [pytest.mark.engine, pytest.mark.timeout(2400)]
IMAGE = "sparktui:from-lock"
SITE = "/opt/sglang/lib/python3.11/site-packages"
BUILD_SECONDS = 2000.0
BOOT_SECONDS = 600.0
READY = re.compile(r"^\[spark\] READY rank=0 port=(\d+) model=\S+", re.MULTILINE)


def settings_in(folder: Path, **changed: str) -> Settings:
    values = {"HEAD_IP": "10.0.0.1", "WORKER_IPS": "10.0.0.2 10.0.0.3", "IMAGE": IMAGE} | changed
    text = "".join(f"{name}={quoted(value)}\n" for name, value in values.items())
    return parse_settings(text, env_path=folder / ".env", profile="three", environment={"HOME": str(folder)})


def build(engine: HostNetworkEngine, settings: Settings, overlay: Path, log: Path) -> str:
    """Run the product's build command with `--network host`; what the builder printed."""
    argv = build_argv(settings, BASE, content_hash(overlay), str(overlay))
    at = argv.index("build") + 1
    done = engine.run([*argv[:at], "--network", "host", *argv[at:]], timeout=BUILD_SECONDS, output=log)
    said = log.read_text(errors="replace")
    assert done.returncode == 0, said[-4000:]
    return said


def inspected(engine: HostNetworkEngine, image: str) -> tuple[dict[str, str], list[str]]:
    """An image's labels and its layers, lowest first."""
    plain = json.loads(engine.docker("image", "inspect", image))[0]
    return plain["Config"]["Labels"] or {}, plain["RootFS"]["Layers"]


def in_image(engine: HostNetworkEngine, *command: str) -> str:
    return engine.docker(
        "run", "--rm", "--network", "none", "--no-healthcheck", "--entrypoint", command[0], IMAGE, *command[1:]
    )


@pytest.fixture(scope="module")
def overlay(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The overlay that ships, as it is now: an edit in the checkout meanwhile changes no test."""
    here = tmp_path_factory.mktemp("overlay") / "overlay"
    return Path(shutil.copytree(shipped("overlay"), here, ignore=shutil.ignore_patterns("__pycache__")))


@pytest.fixture(scope="module")
def engine(overlay: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostNetworkEngine]:
    """An Engine that holds IMAGE, built from the lock; the lock's layer comes from the cache where it is there."""
    cache = LockImageCache(RECIPE)
    with cache.held():
        if not cache.has_room:
            pytest.skip("disk too small for the engine: its image needs 30 GB in the cache")
        work = tmp_path_factory.mktemp("lock")
        with HostNetworkEngine(work / "engine", cache.data) as engine:
            ensure_base(engine, work)
            environment, binds = pip_settings.of_this_machine()
            engine.set_runtime(binds=binds, environment=environment)
            build(engine, settings_in(work), overlay, work / "build.log")
            engine.set_runtime(binds=(), environment={})
            cache.complete()
            engine.docker("image", "prune", "--force")  # earlier overlays
            yield engine
    mounts = Path("/proc/mounts").read_text()
    assert str(work) not in mounts and str(cache.folder) not in mounts
    assert not cgroup_dirs("sparktui-image-from-lock")


def test_the_image_says_what_it_was_built_from(engine: HostNetworkEngine, overlay: Path) -> None:
    labels, _ = inspected(engine, IMAGE)
    assert labels["sparktui.owner"] == "sparktui"
    assert labels["sparktui.engine.lock"] == engine_env.VERSION
    assert labels["sparktui.engine.bring_to_lock"] == "auto"
    assert labels[OVERLAY_LABEL] == content_hash(overlay)
    assert (labels[BASE_LABEL], labels[NFS_LABEL]) == (BASE, "kernel")


def test_the_older_engine_is_replaced_by_the_lock_and_by_nothing_else(engine: HostNetworkEngine, overlay: Path) -> None:
    lock = (overlay / "engine-x86_64.lock").read_text()
    wanted = {normal(name): version for name, version in re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", lock, re.M)}
    listed = in_image(engine, "python3", "-m", "pip", "list", "--format", "json", "--disable-pip-version-check")
    found = {normal(each["name"]): each["version"] for each in json.loads(listed)}
    assert {name: found.get(name) for name in wanted} == wanted
    assert found.keys() - wanted.keys() <= {"pip", "setuptools", "sparktui-overlay", "spark-overlay"}
    assert LEFT_OVER not in in_image(engine, "ls", f"{SITE}/sglang").split()


def test_the_exporters_programs_are_in_it_and_no_package_list_stayed(engine: HostNetworkEngine) -> None:
    assert in_image(engine, "sh", "-c", "command -v rpc.nfsd; ls /var/lib/apt/lists").split() == ["/usr/sbin/rpc.nfsd"]


def test_the_row_store_was_compiled_in_it_and_the_compiler_did_not_stay(engine: HostNetworkEngine) -> None:
    """The base has no g++: it came from the distribution for one layer."""
    assert in_image(engine, "sh", "-c", "command -v g++ gcc cc ld; ls /opt/spark-overlay/lib").split() == [
        "librow_store.so"
    ]
    loaded = "from spark_overlay.row_store import load; print(load().rs_crc32c(b'123456789', 9))"
    assert int(in_image(engine, "python3", "-S", "-c", loaded)) == 0xE3069283


def test_another_overlay_or_exporter_keeps_the_locks_layer(
    engine: HostNetworkEngine, overlay: Path, tmp_path: Path
) -> None:
    edited = tmp_path / "overlay"
    shutil.copytree(overlay, edited)
    changed = edited / "spark_overlay/node_view.py"
    changed.write_text(changed.read_text() + "\n# changed by a test\n")
    _, base = inspected(engine, BASE)
    _, first = inspected(engine, IMAGE)
    up_to_lock = len(base) + 2  # the locks, what they install
    other = settings_in(tmp_path, IMAGE="sparktui:other-overlay")
    bare = settings_in(tmp_path, IMAGE="sparktui:no-exporter", NFS_SHARE="0")
    # Without the exporter's layer the one above it is built again; its compiler is not this test's subject.
    engine.set_runtime(binds=compiler.binds(), environment=compiler.environment())
    try:
        build(engine, other, edited, tmp_path / "other.log")
        build(engine, bare, edited, tmp_path / "bare.log")
        _, second = inspected(engine, other.image)
        shown = ("--human=false", "--no-trunc", "--format", "{{.Size}} {{.CreatedBy}}")
        steps = engine.docker("history", *shown, other.image)
        _, third = inspected(engine, bare.image)
    finally:
        engine.set_runtime(binds=(), environment={})
        for settings in (other, bare):
            engine.run(["docker", "rmi", settings.image])
    up_to_row_store = up_to_lock + 4  # the exporter's script and programs, the row store's sources and library
    assert second[:up_to_row_store] == first[:up_to_row_store] and second[up_to_row_store:] != first[up_to_row_store:]
    above = steps.partition("install_row_store.sh /opt/spark-overlay/lib")[0].splitlines()[:-1]
    assert 0 < sum(int(line.split()[0]) for line in above) < 1 << 20, "what an adapter's change builds anew, in bytes"
    assert third[:up_to_lock] == first[:up_to_lock]


def test_its_entry_point_starts_the_engine_and_answers_42(
    engine: HostNetworkEngine, tiny_model: Path, tmp_path: Path
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = settings_in(
        tmp_path,
        **engine_env.env_file(),
        MODEL_DIR=str(tiny_model), COMMON_MODEL=str(tiny_model), ENGRAM_DIR=str(tmp_path / "engram"),
        PORT=str(port), HOST="127.0.0.1", NCCL_NET="Socket", NCCL_SOCKET_IFNAME="lo", GLOO_SOCKET_IFNAME="lo",
    )  # fmt: skip
    spec = launch_specs(settings, {})[0].container
    alone = {"NNODES": "1", "TP_SIZE": "1", "EP_SIZE": "1", "DIST_INIT_ADDR": f"127.0.0.1:{settings.dist_port}"}
    alone |= {name: "127.0.0.1" for name in ("HOST_IP", "SGLANG_HOST_IP", "VLLM_HOST_IP")}
    spec = dataclasses.replace(spec, environment=spec.environment | alone)
    for mount in spec.mounts:
        Path(mount.source).mkdir(parents=True, exist_ok=True)
    stub = engine_env.engine_dir() / engine_env.STUB
    engine.set_runtime(
        binds=[{"source": str(stub), "target": str(engine_env.IN_CONTAINER / engine_env.STUB), "read_only": True}],
        environment=engine_env.machine_environment(1),
    )
    started = engine.run(spec.run_argv())
    assert started.returncode == 0, started.stderr
    deadline = time.monotonic() + BOOT_SECONDS
    while not READY.search(log := log_of(engine, spec.name)):
        running = engine.docker("inspect", "--format", "{{.State.Running}}", spec.name).strip()
        assert running == "true" and time.monotonic() < deadline, log[-6000:]
        time.sleep(2)
    assert [found[1] for found in READY.finditer(log)] == [str(port)]

    check = next(each for each in json.loads(engine_env.SMOKE.read_text())["checks"] if each["id"] == "arithmetic")
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120, trust_env=False) as client:
        model = client.get("/v1/models").json()["data"][0]["id"]
        choice = client.post("/v1/chat/completions", json={"model": model, **check["request"]}).json()["choices"][0]
    assert choice["message"]["content"] == check["expect"]["content"] == "42"
    assert choice["finish_reason"] == "stop"

    engine.docker("stop", spec.name)
    log = log_of(engine, spec.name)
    assert READY.findall(log) == [str(port)]
    # SIGKILL, which the Engine sends after the spec's 30 seconds, would make it 137.
    assert engine.docker("inspect", "--format", "{{.State.ExitCode}}", spec.name).strip() == "0"
    assert "[spark] rank=0 engine ended after SIGTERM, code=0" in log
    assert "crashed with exit code" not in log
    engine.docker("rm", spec.name)
    # A container of its own: an exec would pass the runtime's wrapper by, with limits that this machine refuses.
    assert (
        in_image(engine, "python3", "-c", "import sglang; print(sglang.__version__)").split()[-1] == engine_env.VERSION
    )


def log_of(engine: HostNetworkEngine, name: str) -> str:
    done = engine.run(["docker", "logs", name])
    return done.stdout + done.stderr


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
