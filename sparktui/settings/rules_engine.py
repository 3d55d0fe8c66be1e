"""Rules of the engine: memory, adapters, the key, what is passed through."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sparktui.settings.model import SECRET_NAMES, SETTINGS, Settings
from sparktui.settings.rule import Found, means_itself, shortened

EXPANDABLE = "expandable_segments:True gives NaN for every prefill of more than 64 tokens"
SECRET_IN_ENVIRONMENT = re.compile(r"(^|_)(API_KEY|TOKEN|PASSWORD|SECRET)$")


def memory(settings: Settings) -> Iterator[Found]:
    if settings.offload_mode == "ram":
        yield Found("OFFLOAD_MODE", "is ram: 189 GiB of Engram rows in memory would push the model out", "nvme")
    elif settings.offload_mode != "nvme":
        yield Found("OFFLOAD_MODE", f"is {shortened(settings.offload_mode)}: nvme is the only one", "nvme")
    if _expandable(settings.pytorch_cuda_alloc_conf):
        yield Found("PYTORCH_CUDA_ALLOC_CONF", EXPANDABLE, "expandable_segments:False")
    elif not re.fullmatch(r"([a-z0-9_]+:[^\s,:]+(,|$))*", settings.pytorch_cuda_alloc_conf):
        reason = f"{shortened(settings.pytorch_cuda_alloc_conf)} is no list of name:value, with commas"
        yield Found("PYTORCH_CUDA_ALLOC_CONF", reason, "expandable_segments:False")
    if settings.context_length > settings.max_total_tokens:
        reason = (
            f"{settings.context_length} tokens cannot fit a KV pool of MAX_TOTAL_TOKENS={settings.max_total_tokens}"
        )
        yield Found("CONTEXT_LENGTH", reason, str(settings.max_total_tokens))
    if settings.chunked_prefill_size > settings.context_length:
        yield Found("CHUNKED_PREFILL_SIZE", "is larger than CONTEXT_LENGTH", str(settings.context_length))
    if 0 < settings.dsv41_memguard_mib < 256:
        reason = f"is {settings.dsv41_memguard_mib}: one step takes more than that; 0 is off, else 256 at least"
        yield Found("DSV41_MEMGUARD_MIB", reason)
    if 0 < settings.dsv41_indexer_score_budget_mib < 16:
        reason = f"is {settings.dsv41_indexer_score_budget_mib}: blocks of a few rows; 0 is the engine's own, else 16"
        yield Found("DSV41_INDEXER_SCORE_BUDGET_MIB", f"{reason} at least")


def _expandable(text: str) -> bool:
    return re.search(r"expandable_segments['\"]?\s*[:=]\s*['\"]?true\b", text, re.IGNORECASE) is not None


LEAST_OF_A_LOOP = {"DSV41_LOOP_NGRAM": 4, "DSV41_LOOP_LINE_REPEATS": 2, "DSV41_LOOP_IDENTICAL": 2}
"""Below it every answer is a loop; 0 switches the detector off."""


def loops(settings: Settings) -> Iterator[Found]:
    for name, least in LEAST_OF_A_LOOP.items():
        value = getattr(settings, name.lower())
        if 0 < value < least:
            yield Found(
                name, f"is {value}: an ordinary answer would be a loop; 0 looks for none, else {least} at least"
            )


def effort(settings: Settings) -> Iterator[Found]:
    effort = settings.sglang_dsv41_reasoning_effort
    if effort not in ("low", "high", "max") and not re.fullmatch(r"[1-9][0-9]?|100", effort):
        reason = f"{shortened(effort) or 'nothing'} is neither 1 to 100 nor low, high or max"
        yield Found("SGLANG_DSV41_REASONING_EFFORT", reason, "75")


def api(settings: Settings) -> Iterator[Found]:
    if not settings.served_model:
        yield Found("SERVED_MODEL_NAME", "is empty: clients need a model id", "deepseek-v4.1-flash")
    if settings.port == settings.dist_port:
        yield Found("DIST_PORT", f"is PORT's {settings.port} as well: the API and the ranks need one each")
    if not re.fullmatch(r"[A-Za-z0-9.:_-]+", settings.host):
        yield Found("HOST", f"{shortened(settings.host) or 'nothing'} is no address to listen on", "0.0.0.0")
    key = settings.api_key.get_secret_value() if settings.api_key else ""
    if not key:
        if not means_itself(settings.host) or settings.host in ("0.0.0.0", "::"):
            yield Found("API_KEY", "is empty: the API is open to the network", warning=True)
    elif not re.fullmatch(r"[!-~]+", key):
        yield Found("API_KEY", "holds a space or a character outside ASCII, which no HTTP header carries")
    elif len(key) < 8:
        yield Found("API_KEY", "is shorter than 8 characters: easy to guess", warning=True)


def passed_through(settings: Settings) -> Iterator[Found]:
    name_of = "EXTRA_CONTAINER_ENV"
    for word in settings.extra_container_env:
        name, equals, value = word.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            yield Found(name_of, f"{shortened(word)} is not NAME=value")
        elif name in SECRET_NAMES or SECRET_IN_ENVIRONMENT.search(name):
            yield Found(name_of, f"holds {name}: a secret there can be read with docker inspect")
        elif _expandable(value):
            yield Found(name_of, f"{name}: {EXPANDABLE}")
        elif name == "OFFLOAD_MODE" and value != "nvme":
            yield Found(name_of, f"OFFLOAD_MODE={shortened(value)}: nvme is the only one")
        elif name == "SGLANG_RAGGED_VERIFY_MODE" and value == "compact":
            yield Found(name_of, "SGLANG_RAGGED_VERIFY_MODE=compact breaks the Engram row reads: take it out")
        elif name in SETTINGS:
            same = _means(getattr(settings, name.lower()), value)
            agreement = "the same value here" if same else "another value here"
            yield Found(name_of, f"holds {name}, a setting of its own with {agreement}: take it out", warning=same)
    for word in settings.extra_sglang_args:
        if word.split("=")[0] in ("--api-key", "--admin-api-key"):
            yield Found("EXTRA_SGLANG_ARGS", "holds a key, which the process list would show: use API_KEY")


def _means(setting: object, text: str) -> bool:
    if isinstance(setting, bool):
        return text == ("1" if setting else "0")
    if isinstance(setting, float) and re.fullmatch(r"[0-9.]+", text):
        return text.count(".") < 2 and float(text) == setting
    return text == (" ".join(setting) if isinstance(setting, tuple) else str(setting))


RULES = (memory, loops, effort, api, passed_through)
