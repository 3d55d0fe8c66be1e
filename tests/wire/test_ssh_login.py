"""Logging in to a real sshd: keys, host keys, jump hosts, refusals."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparktui.errors import HostKeyChanged, HostKeyUnknown, NodeUnreachable
from sparktui.remote.known_hosts import trust_host_key
from sparktui.remote.ssh_keys import FoundBy
from tests.wire.conftest import Wire
from tests.wire.private_sshd import TemporaryUser, free_port, make_key

pytestmark = pytest.mark.testbed
RELAY = """
import os, socket, sys, threading
far = socket.create_connection((sys.argv[1], int(sys.argv[2])))
def up():
    while data := os.read(0, 65536):
        far.sendall(data)
threading.Thread(target=up, daemon=True).start()
while data := far.recv(65536):
    os.write(1, data)
"""


def tool(*argv: object, **options: object) -> str:
    done = subprocess.run([str(each) for each in argv], capture_output=True, text=True, timeout=20, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


async def test_u01_a_key_with_another_name_is_found_and_named(wire: Wire) -> None:
    key = wire.key("id_ed25519_shared")
    daemon = wire.sshd(key=key)
    login = await wire.link(daemon.port).login()
    assert login.text == f"OK root@127.0.0.1:{daemon.port} via {key} (found by: glob)"


async def test_u01_when_no_key_works_each_one_tried_is_listed_with_sshs_last_line(wire: Wire) -> None:
    keys = [wire.key("id_ed25519"), wire.key("work_shared")]
    daemon = wire.sshd()
    with pytest.raises(NodeUnreachable) as refused:
        await wire.link(daemon.port).login()
    for key in keys:
        assert f"{key} (found by: " in refused.value.what
    assert "root@127.0.0.1: Permission denied (publickey)" in refused.value.what
    assert "addresses are as seen from this head" in refused.value.fix
    assert (
        "ssh-copy-id -i" in refused.value.fix
        and "chmod 600" in refused.value.fix
        and "sshd_config.d" in refused.value.fix
    )


@pytest.mark.parametrize("most", [6, 3])
async def test_more_keys_than_sshd_allows_tries_are_all_offered(wire: Wire, most: int) -> None:
    for number in range(11):
        wire.key(f"id_a{number:02}")
    daemon = wire.sshd(f"MaxAuthTries {most}", key=wire.key("zz_shared"))
    login = await wire.link(daemon.port).login()
    assert login.key.endswith("zz_shared")
    assert [each.result for each in login.tried] == ["refused"] * 11 + ["accepted"]


async def test_u02_the_ssh_config_names_the_key_and_a_different_setting_is_a_mismatch(wire: Wire) -> None:
    work, other = wire.key("work_key"), wire.key("id_ed25519")
    daemon = wire.sshd(key=work)
    (wire.ssh / "config").write_text(
        f"Host spark2\n  Hostname 127.0.0.1\n  Port {daemon.port}\n  User root\n  IdentityFile {work}\n"
    )
    plain = await wire.link(None, host="spark2", user=None).login()
    assert (plain.key, plain.found_by, plain.mismatch) == (str(work), FoundBy.SSH_CONFIG, None)
    other_said = await wire.link(None, host="spark2", user=None, identity=other).login()
    assert other_said.mismatch == (str(other), str(work))
    assert f"mismatch: .env says {other}, ssh uses {work}" in other_said.warnings
    assert [(each.found_by, each.result) for each in other_said.tried] == [
        (FoundBy.SETTING, "refused"),
        (FoundBy.SSH_CONFIG, "accepted"),
    ]


async def test_u06_sshd_that_refuses_keys_is_told_apart_and_names_the_drop_in_folder(wire: Wire) -> None:
    daemon = wire.sshd("PubkeyAuthentication no", "PasswordAuthentication yes", key=wire.key())
    with pytest.raises(NodeUnreachable) as refused:
        await wire.link(daemon.port).login()
    assert "refuses keys (it allows: password)" in refused.value.what
    assert "/etc/ssh/sshd_config.d/" in refused.value.fix


async def test_u06_without_any_key_the_next_step_is_to_make_one(wire: Wire) -> None:
    daemon = wire.sshd()
    with pytest.raises(NodeUnreachable, match="no key could be offered") as refused:
        await wire.link(daemon.port).login()
    assert "ssh-keygen -t ed25519" in refused.value.fix


async def test_an_encrypted_key_says_what_it_needs(wire: Wire) -> None:
    wire.key("id_ed25519", passphrase="not known")
    daemon = wire.sshd()
    with pytest.raises(NodeUnreachable, match="needs its passphrase: `ssh-add` it first"):
        await wire.link(daemon.port).login()


@pytest.mark.parametrize("keys", [0, 7])
@pytest.mark.parametrize("allowed", ["yes", "no"])
async def test_the_password_is_the_last_resort_and_never_shown(
    wire: Wire, login_user: Callable[..., TemporaryUser], keys: int, allowed: str
) -> None:
    word = "correct horse"
    user = login_user("sparkword", "bash", password_hash=tool("openssl", "passwd", "-6", word).strip())
    for number in range(keys):
        wire.key(f"id_{number}")
    daemon = wire.sshd("PasswordAuthentication yes", f"PubkeyAuthentication {allowed}")
    link = wire.link(daemon.port, user=user.name, password=word)
    login = await link.login()
    assert "via password (WORKER_PASS)" in login.text
    assert [each.result for each in login.tried] == ["refused"] * (keys if allowed == "yes" else 0)
    assert word not in repr(login) + repr(link.access)
    with pytest.raises(NodeUnreachable, match="WORKER_PASS was refused too") as refused:
        await wire.link(daemon.port, user=user.name, password="wrong horse").login()
    assert "wrong horse" not in str(refused.value.lines())


async def test_u11_a_node_behind_a_jump_host_is_reached_and_the_hop_is_named(wire: Wire) -> None:
    key = wire.key("id_ed25519")
    bastion, node = wire.sshd(key=key, name="bastion"), wire.sshd(key=key)
    (wire.ssh / "more").write_text(f"Host bastion\n  Hostname 127.0.0.1\n  Port {bastion.port}\n  User root\n")
    (wire.ssh / "config").write_text(
        f"Include {wire.ssh}/more\n"
        f"Host spark2\n  Hostname 127.0.0.1\n  Port {node.port}\n  User root\n  ProxyJump bastion\n"
    )
    link = wire.link(None, host="spark2", user=None)
    login = await link.login()
    assert login.via == "bastion" and login.text.endswith("through bastion")
    assert (await link.run(["sh", "-c", "echo ${SSH_CONNECTION##* }"], deadline_seconds=20)).stdout.strip() == str(
        node.port
    )


async def test_u11_a_proxy_command_is_honoured(wire: Wire) -> None:
    daemon = wire.sshd(key=wire.key())
    relay = wire.folder / "relay.py"
    relay.write_text(RELAY)
    (wire.ssh / "config").write_text(
        f"Host spark2\n  Hostname 127.0.0.1\n  Port {daemon.port}\n  User root\n  ProxyCommand python3 {relay} %h %p\n"
    )
    link = wire.link(None, host="spark2", user=None)
    assert (await link.run(["echo", "through"], deadline_seconds=20)).stdout == "through\n"


async def test_an_unknown_host_key_is_shown_and_trusted_by_one_line(wire: Wire) -> None:
    daemon = wire.sshd(key=wire.key(), known=False)
    link = wire.link(daemon.port)
    with pytest.raises(HostKeyUnknown) as unknown:
        await link.login()
    printed = tool("ssh-keygen", "-lf", daemon.host_key)
    assert unknown.value.fingerprint in printed and unknown.value.fingerprint.startswith("SHA256:")
    trust_host_key(unknown.value.known_hosts_line, wire.ssh / "known_hosts")
    assert (await link.login()).key
    # …and OpenSSH reads that line as we do.
    assert "found: line 1" in tool("ssh-keygen", "-F", f"[127.0.0.1]:{daemon.port}", "-f", wire.ssh / "known_hosts")


@pytest.mark.parametrize("kind", ["ed25519", "rsa"])
async def test_a_changed_host_key_is_refused_with_file_line_and_command(wire: Wire, kind: str) -> None:
    daemon = wire.sshd(key=wire.key(), known=False)
    other = make_key(wire.folder / "other", kind=kind).with_suffix(".pub").read_text().split()
    known = wire.ssh / "known_hosts"
    known.write_text(f"# a comment\n[127.0.0.1]:{daemon.port} {other[0]} {other[1]}\n")
    with pytest.raises(HostKeyChanged) as changed:
        await wire.link(daemon.port).login()
    assert f"{known} line 2" in changed.value.what and "CHANGED" in changed.value.what
    assert f"ssh-keygen -f {known} -R '[127.0.0.1]:{daemon.port}'" in changed.value.fix


async def test_hashed_known_hosts_are_understood(wire: Wire) -> None:
    daemon = wire.sshd(key=wire.key())
    tool("ssh-keygen", "-q", "-H", "-f", wire.ssh / "known_hosts")
    assert "127.0.0.1" not in (wire.ssh / "known_hosts").read_text()
    assert (await wire.link(daemon.port).login()).key


async def test_nothing_listening_and_an_unknown_name_are_two_texts(wire: Wire) -> None:
    with pytest.raises(NodeUnreachable, match="connection refused, nothing listens there"):
        await wire.link(free_port()).login()
    with pytest.raises(NodeUnreachable, match=r"the name nosuchspark.* is not known here"):
        await wire.link(22, host="nosuchspark.invalid").login()


async def test_a_bad_ssh_config_is_named(wire: Wire) -> None:
    (wire.ssh / "config").write_text("Hots spark2\n")
    with pytest.raises(NodeUnreachable, match="ssh refuses its configuration"):
        await wire.link(22).login()


@pytest.fixture
def agent(wire: Wire) -> Iterator[Path]:
    path = wire.folder / "agent.sock"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL)
    try:
        for _ in range(100):
            if path.exists():
                break
            time.sleep(0.05)
        yield path
    finally:
        process.terminate()
        process.wait(timeout=10)


async def test_an_agents_key_works_and_a_forwarded_agent_is_warned_about(
    wire: Wire, agent: Path, tmp_path: Path
) -> None:
    key = make_key(tmp_path / "elsewhere" / "laptop")
    tool("ssh-add", "-q", key, env={"SSH_AUTH_SOCK": str(agent)})
    daemon = wire.sshd(key=key)
    local = await wire.link(daemon.port, environment={"SSH_AUTH_SOCK": str(agent)}).login()
    assert (local.found_by, local.only_in_forwarded_agent, local.warnings) == (FoundBy.AGENT, False, ())

    # The same agent, forwarded into a login on a real sshd, as a laptop's is on the head.
    command = [
        "ssh",
        "-A",
        "-F",
        "/dev/null",
        "-o",
        f"UserKnownHostsFile={wire.ssh}/known_hosts",
        "-p",
        str(daemon.port),
    ]
    login = subprocess.Popen(  # noqa: ASYNC220
        [*command, "root@127.0.0.1", "echo $SSH_AUTH_SOCK; exec cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"SSH_AUTH_SOCK": str(agent), "PATH": "/usr/bin:/bin"},
    )
    try:
        assert login.stdout
        forwarded = login.stdout.readline().decode().strip()
        assert forwarded
        over = await wire.link(daemon.port, environment={"SSH_AUTH_SOCK": forwarded}).login()
        assert over.only_in_forwarded_agent and "cannot use it" in over.warnings[0]
    finally:
        login.kill()
        login.wait(timeout=10)
