"""What a machine says before its settings, and what is proposed from it: with its source, and never a guess."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktui.cluster.node import Node
from sparktui.cluster.profile import FOUR, FOUR_RING, PROFILES, THREE
from sparktui.envfile import parse_env
from sparktui.remote.local import LocalLink
from sparktui.settings import SETTINGS
from sparktui.steps.discovery import DISCOVERY_SCRIPT, NODE_SCRIPT, Found, Way, parse_discovery, parse_node
from sparktui.ui.first_start.draft import PAGES, SECRETS, Draft, KeyChoice, from_text, keep_draft, read_draft, to_text
from sparktui.ui.first_start.env_text import PAGE_OF, make, target_path
from sparktui.ui.first_start.proposals import NodeSaid, propose, split_hosts
from tests.ui.first_start_parts import ALIASES, addresses_text, discovery_text, fabric_text

HOME = {"HOME": "/home/user"}


def said(rank: int) -> NodeSaid:
    return NodeSaid(f"worker{rank}", *parse_node(f"@addresses\n{addresses_text(rank)}@fabric\n{fabric_text()}"))


BOTH = {"spark-b": said(1), "spark-c": said(2)}


def test_the_heads_address_is_the_lan_port_and_others_are_named() -> None:
    proposed = propose(THREE, {}, parse_discovery(discovery_text()), {})["HEAD_IP"]
    assert proposed.value == "192.168.20.11"
    assert "enP7s7" in proposed.source
    assert len(proposed.choices) == 5


def test_bridges_of_docker_are_no_address_of_the_head() -> None:
    text = discovery_text(cables=False).replace(
        "@route",
        "7: docker0    inet 172.17.0.1/16 scope global docker0\n8: br-12ab    inet 172.18.0.1/16\n@route",
    )
    proposed = propose(THREE, {}, parse_discovery(text), {})["HEAD_IP"]
    assert [value for value, _ in proposed.choices] == ["192.168.20.11"]


def test_neighbours_on_the_cables_are_workers_each_once_and_gone_ones_are_not() -> None:
    neighbours = (
        "10.10.0.2 dev enp1s0f0np0 lladdr 02:00:00:00:02:02 REACHABLE\n"
        "10.10.1.2 dev enP2p1s0f0np0 lladdr 02:00:00:00:02:03 REACHABLE\n"
        "10.10.4.3 dev enp1s0f1np1 lladdr 02:00:00:00:03:02 STALE\n"
        "10.10.4.9 dev enp1s0f1np1 FAILED\n"
        "192.168.20.1 dev enP7s7 lladdr 02:00:00:00:09:09 REACHABLE\n"
    )
    found = parse_discovery(discovery_text(aliases="", neighbours=neighbours))
    assert [(each.host, each.way) for each in found.candidates] == [("10.10.0.2", Way.CABLE), ("10.10.4.3", Way.CABLE)]
    proposed = propose(THREE, {}, found, {})["WORKER_HOSTS"]
    assert proposed.value == "10.10.0.2 10.10.4.3"
    assert "answers on a cable" in proposed.source


def test_this_machine_is_not_its_own_worker() -> None:
    aliases = ALIASES + "spark-a\thostname=192.168.20.11 \nme\thostname=10.10.0.1 \n"
    found = parse_discovery(discovery_text(aliases=aliases))
    assert [each.host for each in found.candidates] == ["spark-b", "spark-c"]


def test_hashed_and_wild_known_hosts_say_nothing_plain_ones_do() -> None:
    known = (
        "|1|abc=|def= ssh-ed25519 AAAA\n*.example ssh-ed25519 AAAA\n[192.168.20.12]:2222 ssh-ed25519 AAAA\n"
        "spark-b,192.168.20.12 ssh-ed25519 AAAA\nspark-b,192.168.20.12 ssh-rsa AAAA\n192.168.20.13 ssh-ed25519 AAAA\n"
        "github.com ssh-ed25519 AAAA\n"
    )
    found = parse_discovery(discovery_text(aliases="", known=known))
    assert [(each.host, each.address) for each in found.candidates] == [
        ("spark-b", "192.168.20.12"),
        ("192.168.20.13", "192.168.20.13"),
        ("github.com", None),
    ]
    # github.com is nowhere near: the two that are in this machine's network are exactly as many as are needed.
    assert propose(THREE, {}, found, {})["WORKER_HOSTS"].value == "spark-b 192.168.20.13"


def test_too_many_are_not_chosen_from() -> None:
    known = "".join(f"192.168.20.{number} ssh-ed25519 AAAA\n" for number in range(30, 36))
    proposed = propose(THREE, {}, parse_discovery(discovery_text(aliases="", known=known)), {})["WORKER_HOSTS"]
    assert proposed.value == ""
    assert "found 6 for 2" in proposed.source
    assert proposed.choices[0][0] == "192.168.20.30 192.168.20.31"


def test_addresses_are_what_the_workers_themselves_say() -> None:
    proposed = propose(THREE, {}, parse_discovery(discovery_text()), BOTH)
    assert proposed["WORKER_IPS"].value == "192.168.20.12 192.168.20.13"
    assert "themselves" in proposed["WORKER_IPS"].source
    assert proposed["WORKER_FABRIC_IPS"].value == "10.10.0.2 10.10.4.3"
    assert proposed["NFS_SERVER_IPS"].value == "10.10.0.1 10.10.4.1"


def test_a_worker_that_did_not_say_leaves_the_cables_unknown() -> None:
    proposed = propose(THREE, {}, parse_discovery(discovery_text()), {"spark-b": said(1)})
    assert proposed["WORKER_FABRIC_IPS"].value == ""
    assert "spark-c did not say" in proposed["WORKER_FABRIC_IPS"].source
    assert proposed["NFS_SERVER_IPS"].value == ""


def test_a_switch_has_one_address_of_the_head_for_all() -> None:
    text = discovery_text().replace("10.10.0.1/24", "10.20.0.1/24")
    rows = "".join(f"3: enp1s0f0np0    inet 10.20.0.{rank + 1}/24 scope global x\n" for rank in (1,))
    others = {
        host: NodeSaid(f"worker{rank}", *parse_node(f"@addresses\n{rows.replace('.2/', f'.{rank + 1}/')}"))
        for rank, host in enumerate(("b", "c", "d"), 1)
    }
    proposed = propose(FOUR, {"WORKER_HOSTS": "b c d"}, parse_discovery(text), others)
    assert proposed["WORKER_FABRIC_IPS"].value == "10.20.0.2 10.20.0.3 10.20.0.4"
    assert proposed["NFS_SERVER_IPS"].value == "10.20.0.1"


@pytest.mark.parametrize(
    ("profile", "devices"),
    [
        (THREE, "rocep1s0f0,rocep1s0f1"),
        (FOUR, "rocep1s0f0,roceP2p1s0f0"),
        (FOUR_RING, "rocep1s0f0,rocep1s0f1,roceP2p1s0f0,roceP2p1s0f1"),
    ],
)
def test_rdma_devices_by_profile(profile: object, devices: str) -> None:
    found = parse_discovery(discovery_text())
    assert propose(profile, {}, found, {})["NCCL_IB_HCA"].value == devices  # type: ignore[arg-type]


def test_other_device_names_are_taken_from_what_is_active() -> None:
    text = (
        discovery_text()
        .replace("roceP2p1s0f", "mlx5_2")
        .replace("rocep1s0f0", "mlx5_0")
        .replace("rocep1s0f1", "mlx5_1")
    )
    proposed = propose(THREE, {}, parse_discovery(text), {})["NCCL_IB_HCA"]
    assert proposed.value == "mlx5_0,mlx5_1"
    assert "active here" in proposed.source


def test_nothing_seen_says_so_and_keeps_the_usual_names() -> None:
    proposed = propose(THREE, {}, parse_discovery(discovery_text(cables=False, aliases="")), {})
    assert proposed["NCCL_IB_HCA"].value == "rocep1s0f0,rocep1s0f1"
    assert "no active RDMA port was seen" in proposed["NCCL_IB_HCA"].source
    assert proposed["WORKER_HOSTS"].value == ""


async def test_the_scripts_run_on_a_real_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ssh = tmp_path / ".ssh"
    (ssh / "config.d").mkdir(parents=True)
    (ssh / "config").write_text(
        "Host spark-x  spark-y\n  HostName 10.1.2.3\n  User nvidia\nHost *\n  User other\nhost=!bad *.z\n"
    )
    (ssh / "config.d" / "more").write_text("\tHost\tspark-z\n")
    (ssh / "known_hosts").write_text("10.9.9.9 ssh-ed25519 AAAA\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    link = LocalLink(Node("head", 0, "127.0.0.1"))
    answer = await link.script(DISCOVERY_SCRIPT, deadline_seconds=30)
    found = parse_discovery(answer.stdout)
    assert found.hostname == os.uname().nodename
    assert {"spark-x", "spark-z", "10.9.9.9"} <= {each.host for each in found.candidates}
    assert next(each for each in found.candidates if each.address == "10.1.2.3").user == "nvidia"
    assert not {"*", "!bad", "*.z"} & {each.host for each in found.candidates}
    assert (await link.script(NODE_SCRIPT, deadline_seconds=30)).ok


@given(st.text(max_size=400))
def test_any_answer_is_read_without_an_error(text: str) -> None:
    found = parse_discovery(
        f"@addresses\n{text}\n@neighbours\n{text}\n@known\n{text}\n@aliases\n{text}\n@announced\n{text}"
    )
    for profile in PROFILES.values():
        propose(profile, {"WORKER_HOSTS": text, "HEAD_IP": text}, found, {})


@given(
    st.lists(st.from_regex(r"[a-z][a-z0-9.-]{0,8}", fullmatch=True), max_size=5),
    st.sampled_from([" ", "\n", ", ", ";\r\n", "\t"]),
)
def test_a_list_is_split_however_it_was_pasted(hosts: list[str], between: str) -> None:
    assert split_hosts(f"  {between.join(hosts)}{between}") == hosts


_ANSWERS = st.dictionaries(st.sampled_from(sorted(PAGE_OF)), st.text(max_size=20), max_size=4)
_DRAFTS = st.builds(
    Draft,
    st.sampled_from(sorted(PROFILES)),
    st.sampled_from(PAGES),
    _ANSWERS,
    st.booleans(),
    st.sampled_from(KeyChoice),
    st.frozensets(st.sampled_from(SECRETS)),
)


@given(_DRAFTS)
def test_a_draft_comes_back_as_it_was(draft: Draft) -> None:
    assert from_text(to_text(draft)) == draft


_BROKEN = st.sampled_from(
    ["{}", "[]", "null", '{"v": 1, "answers": [1], "key": 3, "page": []}', '{"v": 1, "key": {}, "given": 7}']
)


@given(st.one_of(st.text(max_size=80), _BROKEN))
def test_a_draft_that_cannot_be_read_is_an_empty_one(text: str) -> None:
    assert from_text(text) == Draft()


def test_a_draft_is_private_from_the_first_byte(tmp_path: Path) -> None:
    path = tmp_path / ".env.first-start.bak"
    keep_draft(path, Draft())
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_draft(path) == Draft()
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


@settings(deadline=None, max_examples=60)
@given(_ANSWERS)
def test_what_is_written_is_what_was_answered_or_it_is_refused(answers: dict[str, str]) -> None:
    draft = Draft(answers={name: value for name, value in answers.items() if name not in ("API_KEY", "HF_TOKEN")})
    proposed = propose(THREE, draft.answers, parse_discovery(discovery_text()), BOTH)
    made = make(draft, proposed, {}, Path("/srv/.env"), HOME)
    read = parse_env(made.text, HOME).values
    if made.settings is not None:
        assert {name: read[name] for name in made.changes} == dict(made.changes)
    else:
        assert made.problems


def test_every_question_is_a_setting_and_every_problem_has_a_group() -> None:
    asked = propose(FOUR_RING, {}, Found(), {})
    assert set(asked) <= set(SETTINGS)
    assert set(asked) <= set(PAGE_OF)


@pytest.mark.parametrize(
    ("given_file", "asked", "chosen", "saved"),
    [
        (".env", None, "three", ".env"),
        (".env", None, "four", ".env.tp4"),
        (".env.tp4", "four", "four", ".env.tp4"),
        (".env.tp4", "four", "three", ".env"),
        ("my.env", None, "four", "my.env"),
    ],
)
def test_a_profile_is_saved_where_it_will_be_looked_for(
    given_file: str, asked: str | None, chosen: str, saved: str
) -> None:
    assert target_path(Path("/srv") / given_file, asked, chosen) == Path("/srv") / saved
