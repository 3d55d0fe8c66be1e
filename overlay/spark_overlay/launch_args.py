"""The container's environment -> the argument list of `sglang.launch_server`. Pure: no files, no processes.

`build(environment)` gives our defaults merged with EXTRA_SGLANG_ARGS (split like a shell would):

- a flag given there replaces that flag of ours, all others of ours stay;
- `--no-FLAG` there removes FLAG of ours (and is passed on where SGLang knows `--no-FLAG` itself, as for bounded
replay);
- `--json-model-override-args` is merged key by key, so that TP padding survives;
- flags that sparktui must know (ranks, ports, the key) are refused there: they have settings of their own;
- so are flags that would start processes without the adapters, or take flags from elsewhere.

The API key is no part of any of this: it reaches the engine through API_KEY_FILE.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

CONTEXT_MIN, CONTEXT_MAX = 4096, 1_048_576
DRAFT_EXPERTS = 128
EXPERT_COLUMNS, EXPERT_SLICE_STEP = 2304, 128
"""An expert's width, and what the engine's kernels want a rank's slice of it to be a multiple of."""
MODEL_SIZES = {"num_attention_heads": 64, "o_groups": 8}
PADDED_SIZES = {"num_attention_heads": 96, "o_groups": 12}
"""TP 3: 64 heads and 8 output groups do not divide by three; 96 and 12 do, with 32 heads and 4 groups a rank."""
PADDED_DRAFT_EXPERTS = 129

_ALIASES = {
    "--model": "--model-path",
    "--tp": "--tp-size",
    "--tensor-parallel-size": "--tp-size",
    "--ep": "--ep-size",
    "--expert-parallel-size": "--ep-size",
    "--nccl-init-addr": "--dist-init-addr",
}
_OWN_SETTINGS = {
    "--api-key": "API_KEY (it would stand in the process list)",
    "--admin-api-key": "API_KEY (it would stand in the process list)",
    "--host": "HOST",
    "--port": "PORT",
    "--tp-size": "TP_SIZE",
    "--ep-size": "EP_SIZE",
    "--nnodes": "NNODES",
    "--node-rank": "the node's place in WORKER_HOSTS",
    "--dist-init-addr": "HEAD_IP and DIST_PORT",
    "--context-length": "CONTEXT_LENGTH",
}
_UNHOOKED = "SGLang starts processes for it that load no plugin, so the adapters would be missing there"
_PAST_HTTP = "it serves past the HTTP routes that the adapters and the key are on"
_REFUSED_FLAGS = {
    "--config": "flags from a file would not be merged with ours, nor checked",
    "--tokenizer-worker-num": _UNHOOKED,
    "--use-ray": _UNHOOKED,
    "--encoder-only": _PAST_HTTP,
    "--smg-grpc-mode": _PAST_HTTP,
    "--grpc-mode": _PAST_HTTP,
    "--grpc-port": _PAST_HTTP,
}
_REFUSED_VARIABLES = {
    "SGLANG_RUST_SERVER": (_PAST_HTTP, frozenset({"", "0", "false", "no", "n"})),
    "SGLANG_GRPC_PORT": (_PAST_HTTP, frozenset({""})),
}
"""Why, and the values that leave it off."""
_ENGINE_KNOWS_NO = frozenset({"--enable-decoder-swa-bounded-replay"})
_SPS_FLAG = "--speculative-dspark-sps-table-path"
_OFF = frozenset({"", "off", "none", "0"})

Flag = tuple[str, tuple[str, ...]]
"""A flag and its values; none for a switch."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A setting that must not start: `what` is wrong, `fix` says what to write."""

    what: str
    fix: str


class LaunchError(ValueError):
    """Everything that is wrong with the environment, in one go."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("; ".join(problem.what for problem in problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Launch:
    """`argv` follows `python -m sglang.launch_server`. `warnings` are to be printed."""

    argv: tuple[str, ...]
    warnings: tuple[str, ...]


class _Environment:
    """Typed look-ups that collect what is wrong instead of stopping at the first."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values
        self.problems: list[Problem] = []

    def text(self, name: str, default: str = "") -> str:
        return self._values.get(name, "").strip() or default

    def number(self, name: str, default: int | None, low: int, high: int) -> int | None:
        text = self.text(name)
        if not text:
            return default
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            self.problems.append(Problem(f"{name}={text} is no whole number from {low} to {high}", f"correct {name}"))
            return default
        return value

    def needed(self, name: str, low: int, high: int) -> int:
        if not self.text(name):
            self.problems.append(Problem(f"{name} is not set", f"set {name}"))
        return self.number(name, low, low, high) or low

    def fraction(self, name: str) -> str:
        text = self.text(name)
        if not text:
            return ""
        try:
            good = 0 < float(text) < 1
        except ValueError:
            good = False
        if not good:
            self.problems.append(Problem(f"{name}={text} is no fraction between 0 and 1", f"correct {name}"))
        return text

    def switch(self, name: str, default: bool) -> bool:
        text = self.text(name)
        if text not in ("", "0", "1"):
            self.problems.append(Problem(f"{name}={text} is neither 0 nor 1", f"write {name}=0 or {name}=1"))
        return default if not text else text == "1"


def served_name(environment: Mapping[str, str]) -> str:
    """The name the endpoint answers to: the first of the comma list SERVED_MODEL_NAME."""
    return environment.get("SERVED_MODEL_NAME", "").split(",")[0].strip() or "deepseek-v4.1-flash"


def build(
    environment: Mapping[str, str],
    model_config: Mapping[str, Any] | None = None,
    file_exists: Callable[[str], bool] = lambda path: False,
) -> Launch:
    """The argument list for this rank. `model_config`: the parsed config.json where at hand (for the TP check).

    Raises LaunchError with all problems.
    """
    env = _Environment(environment)
    warnings: list[str] = []
    _refuse_forbidden(env)
    ours = _defaults(env, warnings, file_exists, model_config)
    try:
        extra = _parse(shlex.split(env.text("EXTRA_SGLANG_ARGS")))
    except ValueError as error:
        env.problems.append(Problem(f"EXTRA_SGLANG_ARGS: {error}", "close the quote or remove the stray word"))
        extra = []
    merged = _merge(ours, extra, env.problems, warnings)
    if env.problems:
        raise LaunchError(tuple(dict.fromkeys(env.problems)))
    return Launch(tuple(word for flag, values in merged for word in (flag, *values)), tuple(warnings))


def _refuse_forbidden(env: _Environment) -> None:
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        if "expandable_segments:true" in env.text(name).lower().replace(" ", ""):
            env.problems.append(
                Problem(
                    f"{name} has expandable_segments:True: every prefill of more than 64 tokens would give NaN",
                    f"write {name}=expandable_segments:False",
                )
            )
    if env.text("SGLANG_RAGGED_VERIFY_MODE").lower() == "compact":
        env.problems.append(
            Problem(
                "SGLANG_RAGGED_VERIFY_MODE=compact: Engram verifies equal blocks only, the engine would stop",
                "remove it, or write SGLANG_RAGGED_VERIFY_MODE=static",
            )
        )
    for name, (why, off) in _REFUSED_VARIABLES.items():
        if env.text(name).lower() not in off:
            env.problems.append(Problem(f"{name}={env.text(name)}: {why}", f"remove {name}"))
    mode = env.text("OFFLOAD_MODE", "nvme")
    if mode != "nvme":
        why = "the Engram rows do not fit a Spark's memory" if mode == "ram" else "only nvme exists"
        env.problems.append(Problem(f"OFFLOAD_MODE={mode}: {why}", "write OFFLOAD_MODE=nvme"))
    if env.text("API_KEY"):
        env.problems.append(
            Problem(
                "API_KEY stands in the container's environment, where `docker inspect` shows it",
                "mount a 0600 file and name it in API_KEY_FILE",
            )
        )


def slice_fits(tp: int, ep: int) -> bool:
    """Whether the expert kernels can run a rank's slice of an expert."""
    return EXPERT_COLUMNS * ep % (tp * EXPERT_SLICE_STEP) == 0


def expert_groups(tp: int) -> int:
    """EP_SIZE where nobody names it: slices of all experts where they fit (TP 3), whole experts otherwise (TP 4)."""
    return 1 if slice_fits(tp, 1) else tp


def _experts(env: _Environment, tp: int, this_model: bool) -> int:
    ep = env.number("EP_SIZE", expert_groups(tp), 1, 64) or 1
    fitting = f"write EP_SIZE={expert_groups(tp)}"
    if tp % ep:
        env.problems.append(Problem(f"EP_SIZE={ep} does not divide TP_SIZE={tp}", fitting))
    elif this_model and not slice_fits(tp, ep):
        columns = f"{EXPERT_COLUMNS * ep / tp:.6g} of an expert's {EXPERT_COLUMNS} columns"
        wanted = f"the kernels need a multiple of {EXPERT_SLICE_STEP}"
        env.problems.append(Problem(f"EP_SIZE={ep} gives a rank {columns}: {wanted}", fitting))
    return ep


def _defaults(
    env: _Environment,
    warnings: list[str],
    file_exists: Callable[[str], bool],
    model_config: Mapping[str, Any] | None,
) -> list[Flag]:
    tp = env.needed("TP_SIZE", 1, 64)
    ep = _experts(env, tp, _is_this_model(model_config))
    nodes = env.number("NNODES", 1, 1, 64) or 1
    rank = env.number("NODE_RANK", 0, 0, nodes - 1) or 0
    context = env.needed("CONTEXT_LENGTH", CONTEXT_MIN, CONTEXT_MAX)
    running = env.number("MAX_RUNNING_REQUESTS", 4, 1, 4096) or 4
    graphs = env.number("CUDA_GRAPH_MAX_BS_DECODE", running, 1, 4096)
    chunk = env.number("CHUNKED_PREFILL_SIZE", None, 64, CONTEXT_MAX)
    pool = env.number("MAX_TOTAL_TOKENS", None, 256, 1 << 31)
    port = env.number("SERVER_PORT", 8888, 1, 65535)
    if not env.text("MODEL_PATH"):
        env.problems.append(Problem("MODEL_PATH is not set", "set MODEL_PATH to the checkpoint's folder"))
    names = [name.strip() for name in env.text("SERVED_MODEL_NAME").split(",") if name.strip()]
    if len(names) > 1:
        warnings.append(f"SGLang serves one model name: {names[0]}; {', '.join(names[1:])} is not listed by /v1/models")
    fraction = env.fraction("MEM_FRACTION_STATIC")
    flags: list[Flag] = [
        ("--model-path", (env.text("MODEL_PATH"),)),
        ("--served-model-name", (names[0] if names else "deepseek-v4.1-flash",)),
        ("--trust-remote-code", ()),
        ("--load-format", ("safetensors",)),
        ("--tp-size", (str(tp),)),
        ("--ep-size", (str(ep),)),
        ("--attention-backend", ("dsv4",)),
        ("--moe-runner-backend", ("flashinfer_mxfp4",)),
        ("--fp8-gemm-backend", ("flashinfer_cutlass",)),
    ]
    flags += [("--mem-fraction-static", (fraction,))] if fraction else []
    flags += [("--chunked-prefill-size", (str(chunk),))] if chunk else []
    flags += [
        ("--context-length", (str(context),)),
        ("--max-running-requests", (str(running),)),
        ("--cuda-graph-max-bs-decode", (str(graphs),)),
    ]
    flags += [("--max-total-tokens", (str(pool),))] if pool else []
    flags += [
        ("--random-seed", ("0",)),
        ("--enable-decoder-swa-bounded-replay", ()),
        ("--enable-cache-report", ()),
        ("--enable-metrics", ()),
        ("--watchdog-timeout", ("1800",)),
        ("--sleep-on-idle", ()),
        ("--tool-call-parser", ("deepseekv41",)),
        ("--reasoning-parser", ("deepseek-v41",)),
        ("--host", (env.text("HOST", "0.0.0.0"),)),
        ("--port", (str(port),)),
    ]
    flags += _speculation(env, warnings, file_exists)
    if _padded(env, tp, model_config):
        sizes: dict[str, int] = dict(PADDED_SIZES)
        if DRAFT_EXPERTS % ep:
            sizes["dspark_n_routed_experts"] = PADDED_DRAFT_EXPERTS
        flags.append(("--json-model-override-args", (json.dumps(sizes, separators=(",", ":")),)))
    if env.switch("DSV41_SERIAL_WEIGHT_LOAD", False):
        flags.append(("--model-loader-extra-config", ('{"enable_multithread_load":false}',)))
    if nodes > 1:
        address = env.text("DIST_INIT_ADDR")
        if not address:
            env.problems.append(Problem("DIST_INIT_ADDR is not set", "set it to HEAD_IP:DIST_PORT"))
        flags += [("--nnodes", (str(nodes),)), ("--node-rank", (str(rank),)), ("--dist-init-addr", (address,))]
    return flags


def _speculation(env: _Environment, warnings: list[str], file_exists: Callable[[str], bool]) -> list[Flag]:
    algorithm = env.text("SPEC_ALGO", "DSPARK")
    if algorithm.lower() in _OFF:
        return []
    if algorithm.upper() != "DSPARK":
        env.problems.append(
            Problem(f"SPEC_ALGO={algorithm}: this model has DSPARK only", "write SPEC_ALGO=DSPARK or off")
        )
    block = env.number("DSPARK_BLOCK_SIZE", 5, 1, 16)
    flags: list[Flag] = [
        ("--speculative-algorithm", ("DSPARK",)),
        ("--speculative-dspark-block-size", (str(block),)),
    ]
    table = env.text("DSPARK_SPS_TABLE")
    if table and file_exists(table):
        warnings.append(f"DSPARK_SPS_TABLE ({table}) is not used: Engram verifies equal blocks only")
    table = env.text("DSPARK_STS_TABLE")
    if table and file_exists(table):
        flags.append(("--speculative-dspark-confidence-sts-path", (table,)))
    if env.switch("DSV41_BLOCK_VERIFY", True):
        if env.text("SGLANG_OPT_DSV41_BLOCKWISE_REJECTION").lower() in ("1", "true", "yes"):
            env.problems.append(
                Problem(
                    "DSV41_BLOCK_VERIFY=1 and SGLANG_OPT_DSV41_BLOCKWISE_REJECTION=1 exclude each other",
                    "set one of them to 0",
                )
            )
        flags.append(("--speculative-use-block-verification", ()))
    return flags


def _is_this_model(model_config: Mapping[str, Any] | None) -> bool:
    """Without a config at hand it is taken for this model: this package serves no other."""
    return model_config is None or model_config.get("model_type") in ("deepseek_v41", "deepseek_v4")


def _padded(env: _Environment, tp: int, model_config: Mapping[str, Any] | None) -> bool:
    """Whether heads and groups are padded: DSV41_TP_PAD, and where nobody says so, when they do not divide."""
    if not _is_this_model(model_config):
        return env.switch("DSV41_TP_PAD", False)
    text = (model_config or {}).get("text_config")
    fields = {**(text if isinstance(text, Mapping) else {}), **(model_config or {})}
    sizes = {name: fields.get(name, size) for name, size in MODEL_SIZES.items()}
    needed = any(size % tp for size in sizes.values())
    padded = env.switch("DSV41_TP_PAD", needed)
    heads = f"{sizes['num_attention_heads']} heads"
    if env.number("TP_SIZE", None, 1, 64) is None:
        return padded
    if needed and any(size % tp for size in PADDED_SIZES.values()):
        env.problems.append(Problem(f"{heads} fit no TP_SIZE={tp}, padded or not", "write TP_SIZE=3 or TP_SIZE=4"))
    elif needed and not padded:
        env.problems.append(Problem(f"{heads} do not divide by TP_SIZE={tp}", "write DSV41_TP_PAD=1"))
    elif padded and not needed:
        env.problems.append(Problem(f"DSV41_TP_PAD=1 pads for nothing at TP_SIZE={tp}", "write DSV41_TP_PAD=0"))
    return padded


def _parse(words: list[str]) -> list[Flag]:
    """Words -> flags with values. Raises ValueError for a value without a flag."""
    flags: list[Flag] = []
    for word in words:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            flags.append((_ALIASES.get(name, name), (value,) if equals else ()))
        elif flags:
            flags[-1] = (flags[-1][0], (*flags[-1][1], word))
        else:
            raise ValueError(f"{word!r} stands before any flag")
    return flags


def _merge(ours: list[Flag], extra: list[Flag], problems: list[Problem], warnings: list[str]) -> list[Flag]:
    names = {flag for flag, _ in ours}
    gone: set[str] = set()
    added: list[Flag] = []
    for flag, values in extra:
        positive = "--" + flag.removeprefix("--no-")
        # argparse takes any unique beginning of a flag, so `--api-k` must be caught as well.
        own = next((setting for name, setting in _OWN_SETTINGS.items() if name.startswith((flag, positive))), None)
        refused = next((name for name in _REFUSED_FLAGS if name.startswith((flag, positive))), None)
        if refused == "--tokenizer-worker-num" and values == ("1",):
            refused = None
        if own:
            problems.append(Problem(f"EXTRA_SGLANG_ARGS has {flag}", f"use {own}"))
        elif refused:
            problems.append(Problem(f"EXTRA_SGLANG_ARGS has {flag}: {_REFUSED_FLAGS[refused]}", f"remove {flag}"))
        elif flag == _SPS_FLAG:
            warnings.append(f"{_SPS_FLAG} is dropped: Engram verifies equal blocks only")
        elif flag.startswith("--no-") and positive in names:
            gone.add(positive)
            if positive in _ENGINE_KNOWS_NO:
                added.append((flag, values))
        elif flag == "--json-model-override-args" and flag in names:
            merged = _merged_json(dict(ours)[flag], values, problems)
            gone.add(flag)
            added.append((flag, (merged,)))
        else:
            gone.add(flag)
            added.append((flag, values))
    return [(flag, values) for flag, values in ours if flag not in gone] + added


def _merged_json(ours: tuple[str, ...], theirs: tuple[str, ...], problems: list[Problem]) -> str:
    try:
        value = json.loads(" ".join(theirs))
        if not isinstance(value, dict):
            raise ValueError("no JSON object")
    except ValueError as error:
        problems.append(
            Problem(f"EXTRA_SGLANG_ARGS: --json-model-override-args: {error}", "give one quoted JSON object")
        )
        return ours[0]
    return json.dumps({**json.loads(ours[0]), **value}, separators=(",", ":"))
