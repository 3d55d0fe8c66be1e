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

from spark_overlay.checkpoint_config import flat, why_another_model
from spark_overlay.tp_padding import OVERRIDES, Sizes

CONTEXT_MIN, CONTEXT_MAX = 4096, 1_048_576
EXPERTS, EXPERT_COLUMNS, EXPERT_SLICE_STEP = 384, 2304, 128
"""The target's experts, an expert's width, and what the engine's kernels want a rank's slice of it to be a multiple of.
"""

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
    "SGLANG_SM120_FLASHMLA_BACKEND": (
        "prompts of more than 64 tokens would leave FlashInfer's sparse attention",
        frozenset({"", "flashinfer"}),
    ),
}
"""Why, and the values that start."""
_ENGINE_KNOWS_NO = frozenset({"--enable-decoder-swa-bounded-replay"})
_OVERRIDE = "--json-model-override-args"
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
    notes: tuple[str, ...] = ()


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
    tp = env.needed("TP_SIZE", 1, 64)
    this_model = _is_this_model(model_config)
    ep = _experts(env, tp, this_model)
    wanted, sizes = _padded_sizes(env, tp, ep, model_config) if this_model else (None, {})
    ours = _defaults(env, warnings, file_exists, tp, ep, sizes)
    try:
        extra = _parse(shlex.split(env.text("EXTRA_SGLANG_ARGS")))
    except ValueError as error:
        env.problems.append(Problem(f"EXTRA_SGLANG_ARGS: {error}", "close the quote or remove the stray word"))
        extra = []
    merged = _merge(ours, extra, env.problems, warnings)
    if wanted is not None:
        _refuse_other_sizes(env, merged, wanted)
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
    """Whether the expert kernels can run a rank's slice of an expert, and each group has as many experts."""
    return EXPERT_COLUMNS * ep % (tp * EXPERT_SLICE_STEP) == 0 and EXPERTS % ep == 0


def expert_groups(tp: int) -> int:
    """EP_SIZE where nobody names it: slices of all experts where they fit (TP 3), whole experts otherwise (TP 4)."""
    return 1 if slice_fits(tp, 1) else tp


def _experts(env: _Environment, tp: int, this_model: bool) -> int:
    ep = env.number("EP_SIZE", expert_groups(tp), 1, 64) or 1
    fitting = f"write EP_SIZE={expert_groups(tp)}" if slice_fits(tp, expert_groups(tp)) else "write TP_SIZE=3 or 4"
    if tp % ep:
        env.problems.append(Problem(f"EP_SIZE={ep} does not divide TP_SIZE={tp}", fitting))
    elif this_model and not slice_fits(tp, ep):
        columns = f"{EXPERT_COLUMNS * ep / tp:.6g} of an expert's {EXPERT_COLUMNS} columns"
        wanted = f"the kernels need a multiple of {EXPERT_SLICE_STEP}"
        if EXPERTS % ep:
            columns, wanted = f"{EXPERTS / ep:.6g} of {EXPERTS} experts", "every rank needs as many"
        env.problems.append(Problem(f"EP_SIZE={ep} gives a rank {columns}: {wanted}", fitting))
    return ep


def _defaults(
    env: _Environment,
    warnings: list[str],
    file_exists: Callable[[str], bool],
    tp: int,
    ep: int,
    sizes: dict[str, int],
) -> list[Flag]:
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
    if sizes:
        flags.append((_OVERRIDE, (json.dumps(sizes, separators=(",", ":")),)))
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
    return model_config is None or not why_another_model(flat(model_config))


def _padded_sizes(
    env: _Environment, tp: int, ep: int, model_config: Mapping[str, Any] | None
) -> tuple[Sizes, dict[str, int]]:
    """The sizes that the model is built with, and those of them that are to be overridden: DSV41_TP_PAD, and where
    nobody says so, what does not divide.
    """
    real = Sizes.of(flat(model_config or {}))
    wanted = real.padded(tp, ep)
    padded = {"0": False, "1": True}.get(env.text("DSV41_TP_PAD"), wanted != real)
    if env.number("TP_SIZE", None, 1, 64) is None:
        return real, {}
    if wanted != real and not padded:
        env.problems.append(Problem(_does_not_divide(real, wanted, tp, ep), "write DSV41_TP_PAD=1"))
    elif padded and wanted == real:
        env.problems.append(Problem(f"DSV41_TP_PAD=1 pads for nothing at TP_SIZE={tp}", "write DSV41_TP_PAD=0"))
    return wanted, wanted.overrides(real)


def _does_not_divide(real: Sizes, wanted: Sizes, tp: int, ep: int) -> str:
    if wanted.heads != real.heads:
        return f"{real.heads} heads and {real.groups} groups do not divide by TP_SIZE={tp}"
    return f"{real.draft_experts} draft experts do not divide by EP_SIZE={ep}"


def _refuse_other_sizes(env: _Environment, merged: list[Flag], wanted: Sizes) -> None:
    """The tensors are padded to `wanted`; a model built with other sizes could not load them."""
    for flag, values in merged:
        if flag != _OVERRIDE:
            continue
        try:
            given = json.loads(" ".join(values))
        except ValueError:
            return
        for name, size in OVERRIDES.items():
            if isinstance(given, dict) and given.get(name, getattr(wanted, size)) != getattr(wanted, size):
                what = f"EXTRA_SGLANG_ARGS builds the model with {name}={given[name]}, and the tensors that are loaded"
                env.problems.append(Problem(f"{what} have {getattr(wanted, size)}", f"take {name} out of {_OVERRIDE}"))


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
        elif flag == _OVERRIDE and flag in names:
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
        problems.append(Problem(f"EXTRA_SGLANG_ARGS: {_OVERRIDE}: {error}", "give one quoted JSON object"))
        return ours[0]
    return json.dumps({**json.loads(ours[0]), **value}, separators=(",", ":"))
