"""`./run` on machines that have no Python, an old one, one without venv, and on a good one (pip stands in)."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "run"
COREUTILS = ("sh", "dirname", "cksum", "cat", "rm", "mkdir", "chmod")

GOOD_PYTHON = r"""#!/bin/sh
# Answers what ./run asks of an interpreter and records what it is told to install.
case "$*" in
*"-m venv"*)
    for last in "$@"; do :; done
    rm -rf "$last" # what --clear does
    mkdir -p "$last/bin"
    cat "$0" >"$last/bin/python"
    printf '#!/bin/sh\necho "sparktui: $*"\n' >"$last/bin/sparktui"
    chmod +x "$last/bin/python" "$last/bin/sparktui"
    ;;
*"-m pip"*)
    echo "$*" >>"$PIP_LOG"
    exit "${PIP_STATUS:-0}"
    ;;
*"-m pytest"*)
    shift 2
    echo "pytest: $*"
    ;;
*dependency-groups*) echo "pytest>=8" ;;
esac
"""


class Machine:
    """A checkout with nothing but `run` and a pyproject, and a PATH of chosen programs."""

    def __init__(self, folder: Path) -> None:
        self.checkout = folder / "a checkout"
        self.bin = folder / "bin"
        self.pip_log = folder / "pip.log"
        for made in (self.checkout, self.bin):
            made.mkdir()
        shutil.copy(SCRIPT, self.checkout / "run")
        self.write_pyproject("1")
        for name in COREUTILS:
            (self.bin / name).symlink_to(str(shutil.which(name)))

    def write_pyproject(self, version: str) -> None:
        (self.checkout / "pyproject.toml").write_text(f'[project]\nname = "x"\nversion = "{version}"\n')

    def program(self, name: str, text: str) -> Path:
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def run(self, *argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
        env = {"PATH": str(self.bin), "PIP_LOG": str(self.pip_log), "HOME": str(self.bin)} | environment
        return subprocess.run(
            [str(self.checkout / "run"), *argv],
            env=env, cwd="/", capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip

    @property
    def installs(self) -> list[str]:
        return self.pip_log.read_text().splitlines() if self.pip_log.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_no_python_names_the_package(machine: Machine) -> None:
    said = machine.run()
    assert said.returncode == 2
    assert "Python 3.11 or newer" in said.stderr and "apt install python3 python3-venv" in said.stderr
    assert said.stdout == "" and not (machine.checkout / ".venv").exists()


def test_an_old_python_is_passed_over_for_a_newer_one(machine: Machine) -> None:
    machine.program("python3", "#!/bin/sh\nexit 1\n")
    assert "found none" in machine.run().stderr
    machine.program("python3.12", GOOD_PYTHON)
    assert machine.run("doctor").stdout == "sparktui: doctor\n"


def test_a_python_without_venv_names_the_package_and_leaves_nothing(machine: Machine) -> None:
    machine.program(
        "python3",
        '#!/bin/sh\ncase "$*" in *"import ensurepip, venv"*) exit 1 ;; *print*) echo 3.12 ;; esac\n',
    )
    said = machine.run()
    assert said.returncode == 2
    assert "sudo apt install python3-venv (or python3.12-venv)" in said.stderr
    assert not (machine.checkout / ".venv").exists()


def test_a_venv_that_fails_half_way_is_removed(machine: Machine) -> None:
    machine.program(
        "python3",
        '#!/bin/sh\ncase "$*" in *"-m venv"*) for l in "$@"; do :; done; mkdir -p "$l/bin"; exit 1 ;; esac\n',
    )
    said = machine.run()
    assert said.returncode == 2 and "venv failed" in said.stderr
    assert not (machine.checkout / ".venv").exists()


def test_makes_the_environment_once_and_passes_arguments_on_unchanged(machine: Machine) -> None:
    machine.program("python3", GOOD_PYTHON)
    first = machine.run("logs", "spark2", "-n", "5")
    assert (first.returncode, first.stdout) == (0, "sparktui: logs spark2 -n 5\n"), first.stderr
    assert len(machine.installs) == 1 and f"--editable {machine.checkout}" in machine.installs[0]
    second = machine.run()
    assert second.stdout == "sparktui: \n" and second.stderr == "", "the second start says nothing of its own"
    assert len(machine.installs) == 1


def test_a_changed_pyproject_is_installed_again(machine: Machine) -> None:
    machine.program("python3", GOOD_PYTHON)
    machine.run()
    machine.write_pyproject("2")
    machine.run()
    machine.run()
    assert len(machine.installs) == 2


def test_a_failed_install_is_said_and_tried_again(machine: Machine) -> None:
    machine.program("python3", GOOD_PYTHON)
    said = machine.run(PIP_STATUS="1")
    assert said.returncode == 2 and "installing failed" in said.stderr and said.stdout == ""
    assert machine.run().returncode == 0
    assert len(machine.installs) == 2


def test_tests_install_their_tools_once(machine: Machine) -> None:
    machine.program("python3", GOOD_PYTHON)
    assert machine.run("test", "-k", "one thing").stdout == "pytest: -k one thing\n"
    machine.run("test")
    assert [("--editable" in line, "dev-requirements.txt" in line) for line in machine.installs] == [
        (True, False),
        (False, True),
    ]


def test_an_environment_whose_python_is_gone_is_made_again(machine: Machine) -> None:
    machine.program("python3", GOOD_PYTHON)
    machine.run()
    (machine.checkout / ".venv/bin/python").unlink()
    said = machine.run("status")
    assert said.stdout == "sparktui: status\n" and "making" in said.stderr
    assert len(machine.installs) == 2, "what was installed went with the old one"


def test_a_chosen_interpreter_is_used_or_refused(machine: Machine) -> None:
    good = machine.program("mine", GOOD_PYTHON)
    assert machine.run("x", PYTHON=str(good)).stdout == "sparktui: x\n"
    shutil.rmtree(machine.checkout / ".venv")
    said = machine.run("x", PYTHON="/nonexistent/python")
    assert said.returncode == 2 and "PYTHON=/nonexistent/python" in said.stderr


@pytest.mark.skipif(shutil.which("dash") is None, reason="dash, the strictest common sh, is not installed")
def test_is_posix_sh(machine: Machine) -> None:
    assert SCRIPT.read_text().startswith("#!/bin/sh\n") and os.access(SCRIPT, os.X_OK)
    checked = subprocess.run(["dash", "-n", str(SCRIPT)], capture_output=True, text=True, timeout=10, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
