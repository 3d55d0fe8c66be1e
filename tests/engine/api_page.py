"""docs/api.md: what the real server answers, plain and with our plugin, asked now; verify on three engines; costs.

    python -m tests.engine.api_page [--engine-0.5.21 FOLDER]      # about five minutes on two cores

FOLDER holds `pip install --no-deps --target FOLDER sglang==0.5.21`. Nothing here is a test: test_api_table.py and
test_loops_over_http.py hold the same rows.
"""

from __future__ import annotations

import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tests.overlay.conftest  # noqa: F401 - makes the image's package importable
from tests.engine import engine_env
from tests.engine.looping import HELLO, MODEL
from tests.engine.serving import KEY, OVERLAY, SMALL_CAP, Serving, environment, serving
from tests.engine.test_api_table import IMAGE_WORD, ROUTES, TOOL, anthropic, chat, effort, generated, limit
from tests.engine.test_loops_over_http import LOOPS, body, events
from tests.overlay.row_store_library import built

ROOT = OVERLAY.parent
PAGE = ROOT / "docs" / "api.md"
CHANGER = engine_env.FOLDER / "sitecustomize_of_a_changed_engine.py"
Row = tuple[str, Callable[[Serving], str]]
HEALTH_ROUNDS = 20
CUT = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"x": "cut of'}}
HISTORY = [
    *HELLO,
    {"role": "assistant", "content": "", "tool_calls": [CUT]},
    {"role": "tool", "tool_call_id": "call_1", "content": "42"},
]


def thinking(**more: Any) -> Callable[[Serving], str]:
    def ask(server: Serving) -> str:
        if chat(server, **more)[0] != 200:
            return "400"
        budget = effort(server, **more)
        return "no thinking" if budget is None else f"thinks, {budget} of 100"

    return ask


def counted(path: str, **more: Any) -> Callable[[Serving], str]:
    def ask(server: Serving) -> str:
        tokens, why = generated(server, path, **more)
        return f"{tokens} tokens, {why}"

    return ask


def looped(path: str, loop: str) -> Callable[[Serving], str]:
    def ask(server: Serving) -> str:
        answer = server.client.post(path, json=body(path, loop))
        told = answer.json()
        if answer.status_code != 200:
            again = answer.headers.get("x-should-retry")
            said = f"{answer.status_code} `{told['message'].split(':')[0]}: {told['message'].split(': ')[1]}`"
            return f"{said}, `x-should-retry: {again}`" if again else said
        tokens = told.get("usage", told.get("meta_info", {}))["completion_tokens"]
        return f"200, {tokens} tokens"

    return ask


def looped_stream(server: Serving) -> str:
    chunks = events(server, "/v1/chat/completions", body("/v1/chat/completions", "identical"))
    errors = [chunk["error"] for chunk in chunks if "error" in chunk]
    if not errors:
        return f"ends with {chunks[-1]['choices'][0]['finish_reason']}"
    return f"ends with an error chunk, {errors[0]['code']} `{': '.join(errors[0]['message'].split(': ')[:2])}`"


def status(path: str, **more: Any) -> Callable[[Serving], str]:
    return lambda server: str(server.client.post(path, json=more).status_code)


def tool_round(server: Serving) -> str:
    check = next(each for each in json.loads(engine_env.SMOKE.read_text())["checks"] if each["id"] == "tool")
    message = chat(server, **check["request"])[1]["choices"][0]["message"]
    call = message["tool_calls"][0]
    result = {"role": "tool", "tool_call_id": call["id"], "content": check["then"]["tool_result"]}
    turn = {"role": "assistant", "content": message["content"], "tool_calls": message["tool_calls"]}
    request = check["request"] | {"messages": [*check["request"]["messages"], turn, result]}
    said = chat(server, **request)[1]["choices"][0]["message"]["content"]
    return f"calls {call['function']['name']}, then says {said}"


def reasoning(server: Serving) -> str:
    smoke = json.loads(engine_env.SMOKE.read_text())
    answer = chat(server, **smoke["hello"] | {"chat_template_kwargs": {"thinking": True}})[1]
    usage = answer["usage"]
    split = bool(answer["choices"][0]["message"]["reasoning_content"])
    return (
        f"{'split off' if split else 'not split'}; {usage['reasoning_tokens']} of {usage['completion_tokens']} tokens"
    )


def key_shown(server: Serving) -> str:
    shown = server.client.get("/server_info").json().get("api_key")
    return {None: "no key is set"}.get(shown, f"`{shown}`" if shown != KEY else "in plain text")


def rows() -> list[Row]:
    found: list[Row] = [("chat, nothing said of thinking", thinking())]
    for kwargs in (
        {"thinking": True},
        {"enable_thinking": True},
        {"enable_thinking": True, "thinking": False},
    ):
        found.append((f"`chat_template_kwargs`: `{json.dumps(kwargs)}`", thinking(chat_template_kwargs=kwargs)))
    for value in ("low", "high", "max", "none", 1, 30, 100, 0.3, 101, "30"):
        found.append((f"`reasoning_effort`: `{json.dumps(value)}`", thinking(reasoning_effort=value)))
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        for shape in (
            {"type": "enabled"},
            {"type": "enabled", "budget_tokens": 2000},
            {"type": "adaptive"},
            {"type": "enabled", "budget_tokens": 5},
            {"type": "disabled", "budget_tokens": 2000},
        ):
            told = f"{path}, `thinking`: `{json.dumps(shape)}`"
            found.append((told, lambda server, path=path, shape=shape: str(anthropic(server, path, shape)[0])))
    stop = {"messages": [{"role": "user", "content": "boats"}], "stop": ["four times"]}
    found.append(("/v1/chat/completions without a limit", counted(ROUTES[0], **stop)))
    found += [(f"{path} without a limit", counted(path)) for path in ROUTES[1:]]
    found += [(f"{path}, a limit of 20 named", counted(path, **limit(path, 20))) for path in ROUTES]
    for path in ("/v1/chat/completions", "/v1/completions", "/generate"):
        found += [(f"{path}, a loop ({loop})", looped(path, loop)) for loop in LOOPS]
    found.append(("/v1/chat/completions as a stream, a loop (identical)", looped_stream))
    found.append(("a cut tool call in the history", status(ROUTES[0], model=MODEL, messages=HISTORY, tools=[TOOL])))
    said = [{"role": "user", "content": f"what is {IMAGE_WORD} here?"}]
    for path, request in (
        ("/v1/chat/completions", {"messages": said, "max_tokens": 2}),
        ("/v1/messages", {"messages": said, "max_tokens": 2}),
        ("/v1/completions", {"prompt": said[0]["content"], "max_tokens": 2}),
        ("/generate", {"text": said[0]["content"], "sampling_params": {"max_new_tokens": 2}}),
    ):
        model = {} if path == "/generate" else {"model": MODEL}
        found.append((f"{path}, the image placeholder in a text", status(path, **model, **request)))
    found += [("a tool call and its result", tool_round), ("reasoning and usage", reasoning)]
    found.append(("the key in /server_info", key_shown))
    return found


def table(model: Path, folder: Path) -> tuple[list[str], str]:
    """The table's lines, and the health check's cost on the server with the plugin."""
    columns = []
    health = ""
    for kind in ("plain", "plugin"):
        settings = {"DSV41_MAX_NEW_TOKENS": str(SMALL_CAP)} if kind == "plugin" else {}
        with serving(kind, model, folder, key=KEY if kind == "plugin" else None, **settings) as server:
            columns.append([ask(server) for _, ask in rows()])
            if kind == "plugin":
                health = health_cost(server)
    lines = ["| request | SGLang as it comes | with the plugin |", "| --- | --- | --- |"]
    for (name, _), before, now in zip(rows(), *columns, strict=True):
        lines.append(f"| {name} | {before} | {now if now == before else f'**{now}**'} |")
    return lines, health


def health_cost(server: Serving) -> str:
    """Of the whole process, interpreter included, beside what the server takes for its answer."""
    python = str(engine_env.engine_python())
    port = server.url.rsplit(":", 1)[1]
    where = {"PYTHONPATH": str(OVERLAY), "PYTHONDONTWRITEBYTECODE": "1", "SERVER_PORT": port, "HOST": "127.0.0.1"}
    check, cpu, answer = [], [], []
    for _ in range(HEALTH_ROUNDS):
        started = time.perf_counter()
        process = subprocess.Popen([python, "-S", "-m", "spark_overlay.health"], env=where, stdout=subprocess.DEVNULL)
        _, process.returncode, used = os.wait4(process.pid, 0)
        check.append(1000 * (time.perf_counter() - started))
        cpu.append(1000 * (used.ru_utime + used.ru_stime))
        assert process.returncode == 0
        started = time.perf_counter()
        assert server.client.get("/health").status_code == 200
        answer.append(1000 * (time.perf_counter() - started))
    modules = "import sys, spark_overlay.health; print(len(sys.modules), 'torch' in sys.modules)"
    loaded = subprocess.run([python, "-S", "-c", modules], env=where, check=True, capture_output=True, text=True)
    count, torch = loaded.stdout.split()
    whole, waited = statistics.median(check), statistics.median(answer)
    return (
        f"Median of {HEALTH_ROUNDS}: `python3 -S -m spark_overlay.health` takes {whole:.0f} ms, of which the server "
        f"takes {waited:.0f} ms: SGLang looks for the answer to its own token once a second. The check itself: "
        f"{whole - waited:.0f} ms, {statistics.median(cpu):.0f} ms of processor time, {count} modules, "
        f"torch {'loaded' if torch == 'True' else 'not loaded'}."
    )


def verify(*path: Path, **more: str) -> list[str]:
    """What verify prints with these folders before the engine's own packages, and its exit status."""
    python_path = ":".join(map(str, (*path, OVERLAY)))
    more["SPARK_ROW_STORE"] = str(built().library)  # in the image it lies beside the package
    done = subprocess.run(
        [str(engine_env.engine_python()), "-W", "ignore", "-m", "spark_overlay", "verify"],
        env=environment(PYTHONPATH=python_path, **more), capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    said = [line for line in done.stdout.splitlines() if line.startswith("[spark]")]
    return ["```console", "$ python3 -m spark_overlay verify; echo $?", *said, str(done.returncode), "```"]


def main(arguments: list[str]) -> None:
    older = Path(arguments[1]) if arguments[:1] == ["--engine-0.5.21"] else None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines, health = table(engine_env.tiny_model_dir(), folder)
        (folder / "sitecustomize.py").write_text(CHANGER.read_text())
        changed = verify(folder, CHANGED_IN="server")
    cost = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "loop_detect.py")], capture_output=True, text=True, check=True
    )
    text = [
        "# The API, seen",
        "",
        f"Made on {datetime.date.today()} by `python -m tests.engine.api_page`: SGLang {engine_env.VERSION} on a CPU,",
        "with a tiny model that has this model's chat encoding, asked over HTTP as it comes and with the plugin",
        f"(`DSV41_MAX_NEW_TOKENS={SMALL_CAP}`, the other settings at their defaults). What the plugin changes is bold.",
        "`tests/engine/test_api_table.py` and `test_loops_over_http.py` hold these rows, and ask the official clients.",
        "",
        *lines,
        "",
        "## The container's health check",
        "",
        health,
        "",
        f"## verify, SGLang {engine_env.VERSION}",
        "",
        *verify(),
        "",
        "## verify, an engine in which one function has another name",
        "",
        *changed,
        "",
    ]
    if older:
        text += ["## verify, SGLang 0.5.21", "", "Its package alone, in the environment of 0.5.23: hooks only.", ""]
        text += [*verify(older), ""]
    text += ["## What watching for loops costs", "", "```console", "$ python benchmarks/loop_detect.py"]
    text += [*cost.stdout.rstrip().splitlines(), "```", ""]
    PAGE.write_text("\n".join(text), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
