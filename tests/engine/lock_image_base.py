"""The base of the image from the lock: Debian, a Python environment at /opt/sglang, and in it an older engine.

The older engine is no more than its metadata and two modules: what a base is known by, and what has to be gone later.
"""

from __future__ import annotations

from pathlib import Path

from tests.engine.host_network_engine import HostNetworkEngine
from tests.testbed.images import SGLANG, ensure_registry_cache, serve_on_host

BASE = "sparktui-lock-base:1"
OLD_VERSION = "0.5.22"
LEFT_OVER = "left_by_the_base.py"
DOCKERFILE = """ARG DEBIAN
FROM ${DEBIAN}
RUN python3 -m venv /opt/sglang
COPY site/ /opt/sglang/lib/python3.11/site-packages/
"""
FILES = {
    "sglang/__init__.py": f'__version__ = "{OLD_VERSION}"\n',
    f"sglang/{LEFT_OVER}": "",
    f"sglang-{OLD_VERSION}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: sglang\nVersion: {OLD_VERSION}\n",
    f"sglang-{OLD_VERSION}.dist-info/INSTALLER": "pip\n",
}
RECIPE = f"{DOCKERFILE}{FILES}"


def ensure_base(engine: HostNetworkEngine, work: Path) -> None:
    """Make BASE in the Engine where it is not there yet (half a minute; a minute more without the testbed's images)."""
    if engine.docker("images", "--quiet", BASE).strip():
        return
    context = work / "base"
    for name, text in FILES.items():
        (context / "site" / name).parent.mkdir(parents=True, exist_ok=True)
        (context / "site" / name).write_text(text)
    record = f"sglang-{OLD_VERSION}.dist-info/RECORD"
    (context / "site" / record).write_text("".join(f"{name},,\n" for name in (*FILES, record)))
    (context / "Dockerfile").write_text(DOCKERFILE)
    with serve_on_host(ensure_registry_cache(), work) as url:
        debian = f"{url.removeprefix('http://')}/{SGLANG[0]}:{SGLANG[1]}"
        engine.docker("pull", debian, timeout=300)
    made = engine.run(
        ["env", "DOCKER_BUILDKIT=0", "docker", "build", "--network", "host", "--force-rm", "--tag", BASE,
         "--build-arg", f"DEBIAN={debian}", str(context)],
        timeout=300,
    )  # fmt: skip
    assert made.returncode == 0, made.stdout[-2000:] + made.stderr[-2000:]
