"""The main job, whole: three bare nodes, `sparktui up`, a chat answer from real SGLang at TP=3.

In order: each test goes on from the one before.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spine import journals
from tests.spine.cluster import PORT, Spine, spine
from tests.testbed import Testbed

pytestmark = [pytest.mark.testbed, pytest.mark.engine, pytest.mark.timeout(1500)]

KEY = "sk-spine-0123456789abcdef"
BOOT_SECONDS = 900.0
CHAT = """\
import json, sys, urllib.error, urllib.request
body = {"model": "deepseek-v4.1-flash", "max_tokens": 32, "temperature": 0,
        "messages": [{"role": "user", "content": "What is 19 + 23? Reply only with the number."}],
        "chat_template_kwargs": {"thinking": False}}
headers = {"Content-Type": "application/json", "Authorization": "Bearer " + sys.stdin.read().strip()}
request = urllib.request.Request(sys.argv[1], json.dumps(body).encode(), headers)
print(json.load(urllib.request.urlopen(request, timeout=120))["choices"][0]["message"]["content"])
"""

LOOP = (
    CHAT.replace('"max_tokens": 32', '"max_tokens": 200, "logit_bias": {"300": 100}').replace(
        "print(", "try:\n    print("
    )
    + """except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
"""
)
GONE_SECONDS = 60.0
"""How long the ranks may outlive one of them; seen: a few seconds, as each idle step is a message between all."""


@pytest.fixture(scope="module")
def cluster(tiny_model: Path) -> Iterator[Spine]:
    """Three bare Sparks whose host keys the head has never seen."""
    with Testbed(3, known_hosts=False) as testbed, spine(testbed, tiny_model, API_KEY=KEY) as made:
        yield made


def test_settings_that_are_wrong_are_refused_before_anything_runs(cluster: Spine) -> None:
    testbed = cluster.testbed
    bad = f"{cluster.recipe}/bad.env"
    testbed.head.write_file(bad, testbed.head.read_file(cluster.env_file) + 'OFFLOAD_MODE="ram"\n', mode=0o600)
    done = testbed.head.run([*cluster.argv("up")[:-1], bad], env=cluster.environment, cwd=cluster.recipe, check=False)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "OFFLOAD_MODE" in done.stderr.splitlines()[0]
    assert not cluster.runs()


def test_an_unknown_host_key_is_never_trusted_in_silence(cluster: Spine) -> None:
    status, events = cluster.events("doctor")
    assert status == 3
    rows = {(e["node"], e["check"]): e for e in events if e["kind"] == "finding"}
    row = rows["worker1", "ssh.login"]
    assert row["state"] in ("FAIL", "UNKNOWN")
    assert "SHA256:" in json.dumps(row), "the fingerprint is shown"
    assert not cluster.testbed.head.path("/home/spark/.ssh/known_hosts").exists()


def test_up_killed_while_serving_starts_then_up_again_does_nothing_twice(cluster: Spine) -> None:
    head = cluster.testbed.head
    viewer = cluster.popen("up", "--yes")
    run_dir, _ = journals.wait_for(
        cluster.runs,
        lambda line: line["kind"] == "note" and line["step"] == "serve" and "dsv41-head started" in line["text"],
        seconds=600,
    )
    started = journals.of_kind(journals.read(run_dir), "run_started")[0]
    head.run(["kill", "-9", str(started["pid"])])
    output, _ = viewer.communicate(timeout=60)
    assert viewer.returncode != 0
    assert "serve" in output.splitlines()[-1] + output.splitlines()[-2], output[-500:]
    assert not journals.of_kind(journals.read(run_dir), "run_finished")
    engines = cluster.engines()
    assert sorted(engines) == ["spk1", "spk2", "spk3"], "the engines go on without the run"

    status, events = cluster.events("up", "--yes", timeout=BOOT_SECONDS)
    assert status == 0, events[-3:]
    ended = journals.outcomes(events)
    assert {name: ended[name] for name in ("download", "build", "share", "pack")} == dict.fromkeys(
        ("download", "build", "share", "pack"), "skipped"
    )
    assert (ended["serve"], ended["smoke"]) == ("done", "done")
    assert cluster.engines() == engines, "no container was started a second time"
    smoke = {e["check"]: e for e in events if e["kind"] == "finding" and e["step"] == "smoke"}
    assert {name: row["state"] for name, row in smoke.items()} == {
        "arithmetic": "OK",
        "json": "OK",
        "tool": "OK",
        "picture": "INFO",
        **dict.fromkeys(("cut", "reasoning", "loop", "placeholder", "thinking"), "OK"),
    }, smoke
    assert "NOT SERVED BY THIS MODEL" in smoke["picture"]["what"]


def test_another_machine_gets_a_chat_answer(cluster: Spine) -> None:
    worker, url = cluster.testbed.workers[0], f"http://{cluster.testbed.head.address}:{PORT}/v1/chat/completions"
    answer = worker.run(["python3", "-c", CHAT, url], stdin=KEY, timeout=180)
    assert answer.stdout.strip() == "42"
    refused = worker.run(["python3", "-c", CHAT, url], stdin="wrong", check=False)
    assert "401" in refused.stderr


def test_up_once_more_skips_all_but_the_questions(cluster: Spine) -> None:
    engines = cluster.engines()
    status, events = cluster.events("up", "--yes")
    assert status == 0
    ended = journals.outcomes(events)
    assert [name for name, how in ended.items() if how == "skipped"] == ["download", "build", "share", "pack", "serve"]
    assert cluster.engines() == engines


def test_the_key_is_nowhere_but_in_its_file(cluster: Spine) -> None:
    testbed = cluster.testbed
    for node in testbed.nodes:
        name = "dsv41-head" if node is testbed.head else "dsv41-worker"
        assert KEY not in node.docker("inspect", name), node.name
        assert KEY not in node.docker("logs", name) + node.run(["docker", "logs", name]).stderr, node.name
        look = "for p in /proc/[0-9]*; do tr '\\0' '\\n' <$p/cmdline; tr '\\0' '\\n' <$p/environ; done 2>/dev/null"
        assert KEY not in node.run(["sh", "-c", look + "; :"]).stdout, node.name
    files = testbed.head.run(["grep", "-rlF", "--", KEY, cluster.recipe], check=False).stdout.split()
    bad = f"{cluster.recipe}/bad.env"
    backup = f"{cluster.env_file}.bak"
    assert sorted(files) == sorted([cluster.env_file, backup, bad, f"{cluster.recipe}/state/api-key"])
    assert {testbed.head.path(path).stat().st_mode & 0o777 for path in files} == {0o600}
    for words in (("talk",), ("talk", "--json"), ("status",), ("smoke", "--dry-run"), ("serve", "--dry-run")):
        done = cluster.sparktui(*words)
        assert done.returncode == 0, done.stderr
        assert KEY not in done.stdout + done.stderr, words


def test_logs_of_any_rank(cluster: Spine) -> None:
    for node, word in (("head", "READY rank=0"), ("worker2", "Dummy health check server")):
        done = cluster.sparktui("logs", node, "-n", "4000")
        assert done.returncode == 0, done.stderr
        assert word in done.stdout


def test_the_engine_is_read_as_a_second_operator_would(cluster: Spine) -> None:
    """A stale viewer or a second terminal sees what is true, and nothing is replaced without being asked."""
    engines = cluster.engines()
    changed = cluster.testbed.head.read_file(cluster.env_file) + 'MAX_RUNNING_REQUESTS="2"\n'
    other = f"{cluster.recipe}/other.env"
    kept = "\n".join(line for line in changed.splitlines() if line != "MAX_RUNNING_REQUESTS=4") + "\n"
    cluster.testbed.head.write_file(other, kept, mode=0o600)
    done = cluster.testbed.head.run(
        [*cluster.argv("serve")[:-1], other, "--json"],
        env=cluster.environment, cwd=cluster.recipe, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout[-800:]
    assert "serve.replace" in done.stdout
    assert cluster.engines() == engines


def test_a_loop_ends_on_every_rank_with_its_name_and_the_server_goes_on(cluster: Spine) -> None:
    testbed = cluster.testbed
    worker, url = testbed.workers[0], f"http://{testbed.head.address}:{PORT}/v1/chat/completions"
    for _ in range(2):
        looping = worker.run(["python3", "-c", LOOP, url], stdin=KEY, timeout=180).stdout
        assert looping.startswith("500 ")
        assert "loop_abort: identical at output token 64" in looping
        assert worker.run(["python3", "-c", CHAT, url], stdin=KEY, timeout=180).stdout.strip() == "42"
    said = set()
    for node in testbed.nodes:
        log = node.docker("logs", "dsv41-head" if node is testbed.head else "dsv41-worker")
        ended = [line for line in log.splitlines() if "loop_abort: identical at output token 64" in line]
        assert len(ended) == 2, node.name
        said.add(tuple(ended))
        stated = [line.split(": ", 1)[1] for line in log.splitlines() if line.startswith("[spark] scheduler: adapter ")]
        assert "adapter loop_abort: armed" in stated
        said.add(tuple(stated))
    assert len(said) == 2, "the same lines on all ranks"


def test_a_rank_that_goes_is_seen_although_the_endpoint_answers(cluster: Spine) -> None:
    gone = cluster.testbed.workers[1]
    gone.docker("kill", "dsv41-worker")
    killed = time.monotonic()
    end = time.monotonic() + 60
    while True:
        status, events = cluster.events("status")
        rows = {(e["check"], e["node"]): e for e in events if e["kind"] == "finding"}
        if rows["rank", "worker2"]["state"] == "WARN" or time.monotonic() > end:
            break
    assert status == 0
    assert "exit code 137" in rows["rank", "worker2"]["what"]
    assert rows["endpoint", "head"]["state"] != "OK"
    refused = cluster.sparktui("smoke")
    assert refused.returncode == 1
    # The head notices by itself within seconds and ends too, so either may be the one that is named.
    assert "rank" in refused.stdout
    assert "does not run" in refused.stdout
    while cluster.engines() and time.monotonic() - killed < GONE_SECONDS:
        time.sleep(1)
    assert not cluster.engines(), "no rank waits for one that is gone"
    head = cluster.testbed.head.docker("logs", "--tail", "400", "dsv41-head")
    head += cluster.testbed.head.run(["docker", "logs", "--tail", "400", "dsv41-head"]).stderr
    assert re.search(r"Connection (closed by peer|reset by peer|refused)|gloo", head), head[-3000:]
    assert re.search(r"^\[spark\] rank=0 engine ended.*, code=[1-9]", head, re.MULTILINE), head[-1000:]


def test_stop_leaves_no_port_no_orphan_no_shared_memory(cluster: Spine) -> None:
    done = cluster.sparktui("stop")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not cluster.engines()
    for node in cluster.testbed.nodes:
        assert not node.run(["ss", "-Hltn", f"sport = :{PORT}"]).stdout
        assert "sglang::" not in node.run(["ps", "-eo", "comm"]).stdout
        assert not node.run(["sh", "-c", "ls /dev/shm | grep -E '^psm_|^torch_' || :"]).stdout


def test_a_rank_that_ends_during_the_boot_ends_the_wait_with_its_name(cluster: Spine) -> None:
    viewer = cluster.popen("serve", "--yes")
    journals.wait_for(
        cluster.runs,
        lambda line: line["kind"] == "note" and line["step"] == "serve" and "dsv41-head started" in line["text"],
        seconds=120,
    )
    cluster.testbed.workers[0].docker("kill", "dsv41-worker")
    killed = time.monotonic()
    output, _ = viewer.communicate(timeout=120)
    assert viewer.returncode == 1, output
    first = next(line for line in output.splitlines() if line.startswith("worker1:"))
    assert "rank 1" in first
    assert "137" in first
    assert time.monotonic() - killed < 60
    assert not cluster.engines(), "no rank is left waiting with its memory held"
    assert cluster.sparktui("stop").returncode == 0
