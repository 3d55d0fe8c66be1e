"""Who may mount the weights: the head's export and the settings refuse everybody, however it is written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spark_overlay.nfs_exports import client_list

import tests.overlay.conftest  # noqa: F401 - makes the image's package importable
from sparktui.cluster.nfs_clients import problem_of


@pytest.mark.parametrize(
    ("clients", "said"),
    [
        ("0.0.0.0/0", "everybody"),
        ("::/0", "everybody"),
        ("0.0.0.0/1,128.0.0.0/1", "everybody"),
        ("10.0.0.2,0.0.0.0/2,64.0.0.0/2,128.0.0.0/1", "everybody"),
        ("::/1,8000::/1", "everybody"),
        ("fe80::1%eth0", ""),
        ("fe80::1%eth0(rw)", ""),
        ("10.0.0.2,*(rw)", ""),
        ("10.0.0.2(rw)", ""),
    ],
)
def test_refused_by_the_settings_and_by_the_exporter(clients: str, said: str) -> None:
    assert said in problem_of(clients.split(","))
    assert problem_of(clients.split(","))
    with pytest.raises(ValueError, match="NFS_CLIENTS"):
        client_list(clients)


@given(st.lists(st.ip_addresses(v=4).map(str) | st.ip_addresses(v=6).map(str), min_size=1, max_size=6))
def test_addresses_are_taken_as_they_are(clients: list[str]) -> None:
    assert problem_of(clients) == ""
    assert client_list(",".join(clients)) == tuple(dict.fromkeys(clients))
