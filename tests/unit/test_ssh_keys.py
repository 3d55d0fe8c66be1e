"""Which keys are tried, in which order, and what is told about it; and what the ssh configuration means."""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktui.errors import HostKeyChanged, HostKeyUnknown
from sparktui.remote.known_hosts import KnownHost
from sparktui.remote.ssh_config import HostConfig, config_argv, read_config
from sparktui.remote.ssh_failures import broken_way, refused_login, unknown_host_key
from sparktui.remote.ssh_keys import (
    FoundBy,
    Login,
    Tried,
    agent_is_forwarded,
    agent_socket,
    discover,
    find_mismatch,
    key_files,
)
from sparktui.remote.ssh_login import expand_percent, split_hop

HOME = Path("/home/u")
DEFAULTS = "".join(f"identityfile ~/.ssh/{name}\n" for name in ("id_rsa", "id_ecdsa", "id_ed25519", "id_dsa"))


@dataclass
class Pair:
    public_data: bytes
    comment: str = ""

    def get_comment(self) -> str:
        return self.comment

    def get_algorithm(self) -> str:
        return "ssh-ed25519"


def load(file: Path) -> list[Pair]:
    text = file.read_text()
    if text == "encrypted":
        raise ValueError("Passphrase must be specified to import encrypted private keys")
    if text == "rubbish":
        raise ValueError("Invalid private key")
    return [Pair(text.encode())]


def config(**values: object) -> HostConfig:
    return HostConfig(**{"host": "spark2", "hostname": "10.0.0.2", "user": "u", "port": 22, **values})  # type: ignore[arg-type]


def test_u01_the_order_is_setting_config_agent_glob(tmp_path: Path) -> None:
    for name in ("id_ed25519", "id_ed25519.pub", "team_shared", "work_key", "setting"):
        (tmp_path / name).write_text(name)
    ours = config(identity_files=(tmp_path / "work_key", tmp_path / "absent"), identities_configured=True)
    found = discover(key_files(ours, tmp_path / "setting", tmp_path), [Pair(b"agents", "laptop")], load)
    assert [(Path(each.name).name, each.found_by) for each in found.candidates] == [
        ("setting", FoundBy.SETTING),
        ("work_key", FoundBy.SSH_CONFIG),
        ("laptop", FoundBy.AGENT),
        ("id_ed25519", FoundBy.GLOB),
        ("team_shared", FoundBy.GLOB),
    ]
    assert found.unusable == []


def test_the_same_key_is_offered_once_and_unusable_ones_are_told(tmp_path: Path) -> None:
    (tmp_path / "id_a").write_text("same")
    (tmp_path / "id_b").write_text("same")
    (tmp_path / "id_c").write_text("encrypted")
    (tmp_path / "id_d").write_text("rubbish")
    found = discover(key_files(config(), tmp_path / "gone", tmp_path), [], load)
    assert [Path(each.name).name for each in found.candidates] == ["id_a"]
    assert [(Path(each.name).name, each.result) for each in found.unusable] == [
        ("gone", "the file does not exist"),
        ("id_c", "needs its passphrase: `ssh-add` it first"),
        ("id_d", "Invalid private key"),
    ]


def test_an_encrypted_key_that_the_agent_holds_is_used_under_its_files_name(tmp_path: Path) -> None:
    (tmp_path / "id_c").write_text("encrypted")
    (tmp_path / "id_c.pub").write_text(f"ssh-ed25519 {base64.b64encode(b'held').decode()} me\n")
    found = discover([(tmp_path / "id_c", FoundBy.SETTING)], [Pair(b"held", "me")], load)
    assert [(each.name, each.found_by) for each in found.candidates] == [(str(tmp_path / "id_c"), FoundBy.SETTING)]


def test_u02_mismatch_only_where_the_user_configured_another_key(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.touch(), other.touch()
    wrote = config(identity_files=(other,), identities_configured=True)
    assert find_mismatch(one, wrote) == (str(one), str(other))
    assert find_mismatch(other, wrote) is None
    assert find_mismatch(None, wrote) is None
    assert find_mismatch(one, config(identity_files=(other,))) is None


def test_ssh_config_is_read_as_ssh_prints_it() -> None:
    text = (
        "user admin\nhostname 10.0.0.2\nport 2222\nidentitiesonly yes\nidentityfile ~/.ssh/work_key\n"
        "proxyjump a,b:2200\nuserknownhostsfile ~/.ssh/known_hosts /etc/extra\n"
        "globalknownhostsfile /etc/ssh/ssh_known_hosts\n"
    )
    read = read_config(text, "spark2", home=HOME)
    assert (read.user, read.hostname, read.port, read.identities_only) == ("admin", "10.0.0.2", 2222, True)
    assert read.identity_files == (HOME / ".ssh/work_key",) and read.identities_configured
    assert read.jumps == ("a", "b:2200") and read.via == "a, b:2200" and read.target == "admin@spark2:2222"
    assert read.known_hosts_files == (HOME / ".ssh/known_hosts", Path("/etc/extra"), Path("/etc/ssh/ssh_known_hosts"))


def test_sshs_built_in_identities_are_not_the_users() -> None:
    read = read_config(f"user u\n{DEFAULTS}proxyjump none\nproxycommand none\n", "spark2", home=HOME)
    assert not read.identities_configured and len(read.identity_files) == 4 and not read.via
    assert read_config("identityfile ~/.ssh/id_ed25519\n", "x", home=HOME).identities_configured


@given(st.text(max_size=300))
def test_no_configuration_text_breaks_the_reader(text: str) -> None:
    try:
        read_config(text, "x", home=HOME)
    except ValueError as error:
        assert "invalid literal for int" in str(error)  # only a port that is no number


def test_a_host_that_looks_like_an_option_is_never_one() -> None:
    assert config_argv("-oProxyCommand=id", user=None, port=None, home=None)[-2:] == ["--", "-oProxyCommand=id"]


@pytest.mark.parametrize(
    "hop, expected",
    [
        ("bastion", (None, "bastion", None)),
        ("me@bastion:2200", ("me", "bastion", 2200)),
        ("ssh://me@bastion:2200/", ("me", "bastion", 2200)),
        ("[fe80::1]:22", (None, "fe80::1", 22)),
        ("fe80::1", (None, "fe80::1", None)),
    ],
)
def test_jump_hosts(hop: str, expected: tuple[str | None, str, int | None]) -> None:
    assert split_hop(hop) == expected


def test_proxy_command_tokens() -> None:
    assert expand_percent("nc %h %p # %n %r %% %x", config(port=2222)) == "nc 10.0.0.2 2222 # spark2 u % %x"


def test_the_agents_socket_follows_the_configuration() -> None:
    around = {"SSH_AUTH_SOCK": "/run/a", "MINE": "/run/b"}
    assert agent_socket(config(), around, HOME) == "/run/a"
    assert agent_socket(config(agent="none"), around, HOME) == ""
    assert agent_socket(config(agent="$MINE"), around, HOME) == "/run/b"
    assert agent_socket(config(agent="~/.agent"), around, HOME) == "/home/u/.agent"
    assert agent_is_forwarded("/nonexistent/agent") is None


def test_a_login_reads_as_one_row() -> None:
    login = Login("u@spark2", "bastion", "/k", FoundBy.GLOB, (), only_in_forwarded_agent=True, mismatch=("A", "B"))
    assert login.text == "OK u@spark2 via /k (found by: glob), through bastion"
    assert login.warnings[1] == "mismatch: .env says A, ssh uses B" and "log out" in login.warnings[0]
    assert "password (WORKER_PASS)" in Login("u@spark2", "", "", None, ()).text


def test_a_password_that_was_refused_is_said_but_never_shown() -> None:
    tried = (Tried("/k", FoundBy.GLOB, "refused"),)
    error = refused_login(
        config(), tried, node="worker1", offered_methods=("publickey", "password"), last_line="", password=True
    )
    assert "WORKER_PASS was refused too" in error.what


def test_a_revoked_host_key_is_refused_for_good() -> None:
    old = [KnownHost("/k", 3, "revoked", "ssh-ed25519", "AAAA")]
    error = unknown_host_key(config(), "ssh-ed25519 AAAA", "SHA256:x", node="worker1", old=old)
    assert isinstance(error, HostKeyChanged) and "revoked in /k line 3" in error.what


def test_an_authority_on_file_does_not_make_a_key_changed() -> None:
    old = [KnownHost("/k", 3, "cert-authority", "ssh-ed25519", "BBBB")]
    error = unknown_host_key(config(port=2222), "ssh-ed25519 AAAA", "SHA256:x", node="worker1", old=old)
    assert isinstance(error, HostKeyUnknown) and error.known_hosts_line == "[10.0.0.2]:2222 ssh-ed25519 AAAA"


def test_every_broken_way_has_a_cause_and_a_next_step() -> None:
    import asyncssh

    errors = [
        TimeoutError(),
        ConnectionRefusedError(),
        OSError(113, os.strerror(113)),
        asyncssh.KeyExchangeFailed("No matching cipher"),
        asyncssh.ChannelOpenError(2, "Connection refused"),
        asyncssh.ConnectionLost("Connection lost"),
        asyncssh.ProtocolError("bad packet"),
        OSError(5, "strange"),
    ]
    said = [broken_way(each, config(), node="worker1", seconds=15) for each in errors]
    assert len({each.what for each in said}) == len(said)
    assert all(each.fix and each.node == "worker1" and each.exit_status == 3 for each in said)
    assert said[2].what == "no route to 10.0.0.2"
