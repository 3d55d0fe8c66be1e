"""Settings and files: profiles, the example files, what is saved and read back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktui.cluster.profile import FOUR, FOUR_RING, PROFILES, THREE, Profile, infer_profile, profile_for
from sparktui.envfile import parse_env, quoted, save, updated_text
from sparktui.errors import SettingsError, UsageError
from sparktui.settings import (
    SECRET_NAMES,
    SETTINGS,
    SettingsRefused,
    default_env_path,
    example_text,
    load_settings,
    setting_rows,
)
from tests.unit.settings_texts import FOUR_SPARKS, HOME, ROOT, THREE_SPARKS, read, refusal


def test_a_profile_says_which_file_and_no_count_is_hard_coded(tmp_path: Path) -> None:
    assert default_env_path(None, tmp_path) == tmp_path / ".env"
    assert default_env_path("four", tmp_path) == default_env_path("four-ring", tmp_path) == tmp_path / ".env.tp4"
    with pytest.raises(UsageError, match="no profile is called five"):
        default_env_path("five", tmp_path)
    workers = " ".join(f"10.0.0.{number}" for number in range(2, 9))
    eight = read(f"HEAD_IP=10.0.0.1\nWORKER_IPS='{workers}'\n")
    assert (eight.nnodes, eight.tp_size, eight.ep_size, eight.dsv41_tp_pad) == (8, 8, 8, False)
    assert (eight.profile.name, eight.state_dir.name, len(eight.nodes)) == ("tp8", "state-tp8", 8)
    assert default_env_path("tp8", tmp_path) == tmp_path / ".env.tp8"
    again = read(f"HEAD_IP=10.0.0.1\nWORKER_IPS='{workers}'\n", profile=eight.profile.name)
    assert again.profile == eight.profile, "a run is given the profile by its name"
    assert "multiple of 128" in str(refusal(f"HEAD_IP=10.0.0.1\nWORKER_IPS='{workers}'\nEP_SIZE=2\n"))
    assert "runs on 3, 4, 6 or 8 Sparks" in str(
        refusal(f"HEAD_IP=10.0.0.1\nWORKER_IPS='{workers.rsplit(' ', 1)[0]}'\n")
    )


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({}, "three"),
        ({"NNODES": "4"}, "four"),
        ({"TP_SIZE": "4"}, "four"),
        ({"WORKER_IPS": "a b c", "NCCL_SWITCHLESS_RING": "1"}, "four-ring"),
        ({"WORKER1_IP": "a", "WORKER2_IP": "b"}, "three"),
        ({"NNODES": "8"}, "tp8"),
        ({"NNODES": "junk"}, "three"),
        ({"NNODES": "٣"}, "three"),
    ],
)
def test_a_file_without_a_profile_says_its_own(values: dict[str, str], name: str) -> None:
    assert infer_profile(values).name == name


def test_a_profile_that_the_file_contradicts_is_refused() -> None:
    assert "another --profile or --env-file" in str(refusal(FOUR_SPARKS + "NNODES=4\n", profile="three"))
    assert "names 2, but profile four has 3 workers" in str(refusal(THREE_SPARKS, profile="four"))
    assert "profile four-ring is the ring" in str(
        refusal(FOUR_SPARKS + "NCCL_SWITCHLESS_RING=0\n", profile="four-ring")
    )


def test_a_missing_file_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(tmp_path / ".env.tp4", profile="four")
    assert caught.value.fix.startswith("cp -n .env.tp4.example .env.tp4")
    assert caught.value.exit_status == 2


def test_a_file_is_never_run(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text(THREE_SPARKS + f"PORT=$(touch {tmp_path}/ran)\ntouch {tmp_path}/ran\n")
    with pytest.raises(SettingsRefused) as caught:
        load_settings(path, environment=HOME)
    assert [each.line for each in caught.value.problems] == [3, 4]
    assert not (tmp_path / "ran").exists()


def test_what_is_not_text_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_bytes(THREE_SPARKS.encode() + b"IMAGE=\xff\xfe\n")
    with pytest.raises(SettingsRefused, match="line 3: this line is not UTF-8"):
        load_settings(path, environment=HOME)


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES.keys())
def test_an_example_file_unchanged_is_refused_line_by_line(profile: Profile) -> None:
    path = ROOT / profile.example_file
    with pytest.raises(SettingsRefused) as caught:
        load_settings(path, profile=profile.name, environment=HOME)
    lines = path.read_text().splitlines()
    told = {each.name for each in caught.value.problems}
    assert {"HEAD_IP", "WORKER_IPS", "WORKER_HOSTS"} <= told
    for problem in caught.value.problems:
        assert "is an example: write your own" in problem.reason
        assert lines[problem.line - 1].startswith(f"{problem.name}=")


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES.keys())
def test_the_example_files_and_the_model_agree(profile: Profile) -> None:
    text = (ROOT / profile.example_file).read_text()
    assert text == example_text(profile), "regenerate it: sparktui.settings.example_text"
    shown = re.findall(r"^(?:# )?([A-Z][A-Z0-9_]*)=", text, re.MULTILINE)
    assert shown == [row.name for row in setting_rows(profile)]
    assert not parse_env(text, HOME).problems
    for row in setting_rows(profile):
        assert f"# ---- {row.group} ----" in text
        assert row.meaning


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES.keys())
def test_an_example_with_real_addresses_starts_with_the_profiles_defaults(profile: Profile) -> None:
    workers = range(2, profile.nnodes + 1)
    changes = {
        "HEAD_IP": "10.0.0.1",
        "WORKER_IPS": " ".join(f"10.0.0.{number}" for number in workers),
        "WORKER_HOSTS": " ".join(f"spark{number}" for number in workers),
        "NFS_SERVER_IPS": "10.0.22.1",
        "WORKER_FABRIC_IPS": " ".join(f"10.0.22.{number}" for number in workers),
        "NCCL_HOST_DIR": "/opt/nccl-2.30.7",
    }
    text = (ROOT / profile.example_file).read_text()
    got = read(updated_text(text, changes))
    bare = read("".join(f"{name}={quoted(value)}\n" for name, value in changes.items()), profile=profile.name)
    assert got.profile is profile
    apart = {"origins", "notices"}
    assert got.model_dump(exclude=apart) == bare.model_dump(exclude=apart)


def test_every_setting_is_described_once_with_defaults_in_range() -> None:
    for profile in (THREE, FOUR, FOUR_RING, profile_for(8)):
        rows = setting_rows(profile)
        assert len({row.name for row in rows}) == len(rows) == len(SETTINGS)
        for row in rows:
            assert row.meaning.endswith("."), row.name
            if row.low is not None and row.high is not None:
                assert row.low <= float(row.default) <= row.high, row.name
            if row.choices:
                assert row.default in row.choices, row.name
    assert {"API_KEY", "WORKER_PASS", "HF_TOKEN"} == SECRET_NAMES


WORDS = st.text("abcdefghijklmnopqrstuvwxyz0123456789-_", min_size=1, max_size=10)
CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "PORT": st.integers(1, 19_999).map(str),
        "CONTEXT_LENGTH": st.integers(4096, 262_144).map(str),
        "MEM_FRACTION_STATIC": st.integers(1, 99).map(lambda percent: f"0.{percent:02}"),
        "NFS_SHARE": st.sampled_from(["0", "1"]),
        "WORKER_HOSTS": st.lists(WORDS.map(lambda word: f"h{word}"), min_size=2, max_size=2, unique=True).map(" ".join),
        "MODEL_DIR": st.text("ab c'\"$\\é", min_size=1, max_size=8).map(lambda text: f"/data/x{text}"),
        "API_KEY": st.text("ab!$'\"\\`#~", min_size=8, max_size=12),
        "SERVED_MODEL_NAME": WORDS,
    },
)


@settings(deadline=None, max_examples=60)
@given(CHANGES)
def test_what_is_saved_is_what_is_read(changes: dict[str, str]) -> None:
    text = updated_text(
        (ROOT / THREE.example_file).read_text(),
        {
            "HEAD_IP": "10.0.0.1",
            "WORKER_IPS": "10.0.0.2 10.0.0.3",
            "WORKER_HOSTS": "",
            "NFS_SERVER_IPS": "",
            "WORKER_FABRIC_IPS": "",
        }
        | changes,
    )
    got = read(text)
    for name, value in changes.items():
        field = getattr(got, name.lower())
        if name in SECRET_NAMES:
            assert field.get_secret_value() == value
        elif isinstance(field, tuple):
            assert " ".join(field) == value
        elif isinstance(field, bool):
            assert field == (value == "1")
        else:
            assert str(field) == value or field == float(value)
    assert updated_text(text, changes) == text


@settings(deadline=None, max_examples=60)
@given(st.text("ABCDEFGHIPORTX", min_size=1, max_size=12).filter(lambda name: name not in SETTINGS))
def test_an_unknown_name_never_stops_anything_and_never_goes_unsaid(name: str) -> None:
    got = read(f"{THREE_SPARKS}{name}=1\n")
    assert [each for each in got.notices if each.name == name and each.line == 3]


def test_saving_a_key_makes_the_file_private(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text(THREE_SPARKS + "API_KEY=correct-horse\n")
    path.chmod(0o644)
    assert any("chmod 600" in each.reason for each in load_settings(path, environment=HOME).notices)
    save(path, {"API_KEY": "correct-horse"}, secret_names=SECRET_NAMES)
    assert path.stat().st_mode & 0o777 == 0o600
    got = load_settings(path, environment=HOME)
    assert got.api_key is not None
    assert got.api_key.get_secret_value() == "correct-horse"
    assert not any("chmod" in each.reason for each in got.notices)
