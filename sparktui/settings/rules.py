"""What settings may not say together. Each rule yields problems; none asks a node."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address, ip_network

from sparktui.envfile import Problem, Severity
from sparktui.settings.model import SECRET_NAMES, SETTINGS, Settings

EXPERT_INTERMEDIATE = 2304
"""Width of one routed expert. Source: the checkpoint's config.json, moe_intermediate_size."""
EXPERT_SLICE_STEP = 128
"""The MXFP4 expert kernels take slices of this multiple. Source: SGLang 0.5.23."""
EXAMPLE_NETWORKS = tuple(ip_network(text) for text in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"))
"""Documentation addresses (RFC 5737), which the example files use."""
EXAMPLE_MARK = "CHANGE-ME"
AUTHORS_INTERFACES = {"FABRIC_IFACE": "enp1s0f1np1", "NCCL_SOCKET_IFNAME": "enP7s7", "GLOO_SOCKET_IFNAME": "enP7s7"}


@dataclass(frozen=True, slots=True)
class Found:
    """A rule's answer: the setting, what is wrong, what to write, and whether it only warns."""

    name: str
    reason: str
    value: str | None = None
    warning: bool = False


def problems_of(settings: Settings, lines: dict[str, int]) -> list[Problem]:
    """Every rule's answer with the line that the setting is on (0 for a default or a command-line value)."""
    return [
        Problem(
            line=lines.get(found.name, 0),
            reason=found.reason if found.name in found.reason else f"{found.name}: {found.reason}",
            fixed="" if found.value is None else f"{found.name}={found.value}",
            name=found.name,
            severity=Severity.WARNING if found.warning else Severity.ERROR,
        )
        for rule in RULES
        for found in rule(settings)
    ]


def _example_values(settings: Settings) -> Iterator[Found]:
    for name in SETTINGS:
        value = getattr(settings, name.lower())
        words = value if isinstance(value, tuple) else (value,) if isinstance(value, str) else ()
        examples = [word for word in words if _is_example(word)]
        if examples:
            yield Found(name, f"{' '.join(examples)} is an example value: write your own")
    for name, example in AUTHORS_INTERFACES.items():
        if getattr(settings, name.lower()) == example:
            yield Found(name, f"{example} is the example value: doctor compares it with each node", warning=True)


def _is_example(word: str) -> bool:
    if EXAMPLE_MARK in word or word.endswith(".example"):
        return True
    address = word.rpartition("@")[2].split("/")[0]
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    return any(parsed in network for network in EXAMPLE_NETWORKS)


def _addresses(settings: Settings) -> Iterator[Found]:
    workers = settings.worker_ips
    if not settings.head_ip:
        yield Found("HEAD_IP", "is not set: write the head's address as the workers reach it")
    elif _own(settings.head_ip):
        yield Found(
            "HEAD_IP", f"{settings.head_ip} means the machine itself: other nodes must be able to reach this address"
        )
    if not workers:
        yield Found("WORKER_IPS", "is not set: write the workers' addresses, in rank order")
    for address in workers:
        if _own(address):
            yield Found("WORKER_IPS", f"{address} means the machine itself: other nodes must be able to reach it")
        elif address == settings.head_ip:
            yield Found("WORKER_IPS", f"{address} is the head's address too: each Spark has its own")
    if len(set(workers)) < len(workers):
        yield Found("WORKER_IPS", "names one address twice: each Spark has its own")
    hosts = settings.worker_hosts
    if hosts and len(hosts) != len(workers):
        yield Found(
            "WORKER_HOSTS", f"names {len(hosts)} workers and WORKER_IPS {len(workers)}: one for each, same order"
        )
    if len(set(hosts)) < len(hosts):
        yield Found("WORKER_HOSTS", "names one worker twice")
    for host in hosts:
        user, at, bare = host.rpartition("@")
        if (at and not user) or not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.:-]*", bare) or user.startswith("-"):
            yield Found("WORKER_HOSTS", f"{host} is neither a host nor user@host")
        elif _own(bare) or bare == "localhost":
            yield Found("WORKER_HOSTS", f"{host} means the head itself: name the worker")
        elif re.fullmatch(r"[^:]+:[0-9]+", bare):
            yield Found(
                "WORKER_HOSTS", f"{host}: a port belongs in your ssh config (Host {bare.split(':')[0]}, Port …)"
            )
    for name in ("WORKER_FABRIC_IPS",):
        given = getattr(settings, name.lower())
        if given and len(given) != len(workers):
            yield Found(name, f"names {len(given)} addresses for {len(workers)} workers: one for each, same order")
    servers = settings.nfs_server_ips
    if servers and len(servers) not in (1, len(workers)):
        yield Found(
            "NFS_SERVER_IPS",
            f"names {len(servers)} addresses: write one, or one for each of the {len(workers)} workers",
        )
    for address in servers:
        if _own(address):
            yield Found("NFS_SERVER_IPS", f"{address} means the worker itself there: write the head's fabric address")


def _own(address: str) -> bool:
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    return parsed.is_loopback or parsed.is_unspecified


def _topology(settings: Settings) -> Iterator[Found]:
    nodes = 1 + len(settings.worker_ips)
    if settings.worker_ips and settings.nnodes != nodes:
        yield Found(
            "NNODES", f"is {settings.nnodes}, but the head and {nodes - 1} workers are {nodes} Sparks", str(nodes)
        )
    if settings.nnodes < 3:
        yield Found(
            "NNODES",
            f"is {settings.nnodes}: about 305 GiB of weights and 121.7 GiB a Spark make three the least",
        )
    if settings.tp_size != settings.nnodes:
        yield Found("TP_SIZE", f"is {settings.tp_size}: a Spark has one GPU, so it is NNODES", str(settings.nnodes))
        return
    tp, ep = settings.tp_size, settings.ep_size
    if ep > tp or tp % ep:
        yield Found("EP_SIZE", f"is {ep} and does not divide TP_SIZE={tp}", str(_good_expert_groups(tp) or tp))
    elif not _slice_fits(tp, ep):
        good = _good_expert_groups(tp)
        yield Found(
            "EP_SIZE",
            f"is {ep}: each rank would hold {EXPERT_INTERMEDIATE * ep / tp:g} of an expert's {EXPERT_INTERMEDIATE} "
            f"columns, and the kernels need a multiple of {EXPERT_SLICE_STEP}",
            None if good is None else str(good),
        )
    divides = 64 % tp == 0 and 8 % tp == 0
    if tp == 3 and not settings.dsv41_tp_pad:
        yield Found("DSV41_TP_PAD", "is 0: 64 heads and 8 groups do not divide by three, so three Sparks need it", "1")
    elif divides and settings.dsv41_tp_pad:
        yield Found("DSV41_TP_PAD", f"is 1: everything divides by {tp}, so nothing may be padded", "0")
    elif tp != 3 and not divides and settings.nnodes >= 3:
        yield Found("TP_SIZE", f"is {tp}: the model's 64 heads and 8 groups fit 3 (padded), 4 or 8 Sparks")


def _slice_fits(tp: int, ep: int) -> bool:
    columns = EXPERT_INTERMEDIATE * ep
    return columns % tp == 0 and (columns // tp) % EXPERT_SLICE_STEP == 0


def _good_expert_groups(tp: int) -> int | None:
    """What to propose: the profile's own choice, 1 for three Sparks and one group a rank otherwise."""
    wanted = (1, tp) if tp == 3 else (tp, *range(tp, 0, -1))
    return next((ep for ep in wanted if tp % ep == 0 and _slice_fits(tp, ep)), None)


def _memory(settings: Settings) -> Iterator[Found]:
    if settings.offload_mode != "nvme":
        reason = (
            "ram would pin the 189 GiB of Engram rows in memory and push the model out"
            if settings.offload_mode == "ram"
            else f"{settings.offload_mode} is not known"
        )
        yield Found("OFFLOAD_MODE", reason, "nvme")
    if _expandable(settings.pytorch_cuda_alloc_conf):
        yield Found(
            "PYTORCH_CUDA_ALLOC_CONF",
            "expandable_segments:True gives NaN for every prefill of more than 64 tokens",
            "expandable_segments:False",
        )
    if settings.context_length > settings.max_total_tokens:
        yield Found(
            "CONTEXT_LENGTH",
            f"{settings.context_length} tokens cannot fit a KV pool of MAX_TOTAL_TOKENS={settings.max_total_tokens}",
            str(settings.max_total_tokens),
        )
    if settings.chunked_prefill_size > settings.context_length:
        yield Found("CHUNKED_PREFILL_SIZE", "is larger than CONTEXT_LENGTH", str(settings.context_length))


def _expandable(text: str) -> bool:
    return re.search(r"expandable_segments\s*:\s*(true|1)\b", text, re.IGNORECASE) is not None


def _engine(settings: Settings) -> Iterator[Found]:
    if settings.dsv41_wo_a_w8_draft and settings.dsv41_wo_a_w8_drop:
        yield Found(
            "DSV41_WO_A_W8_DRAFT",
            "is 1 together with DSV41_WO_A_W8_DROP: the draft loses its weights and acceptance falls to 1.0 token",
            "0",
        )
    effort = settings.sglang_dsv41_reasoning_effort
    if effort not in ("low", "high", "max") and not (
        effort.isascii() and effort.isdecimal() and 1 <= int(effort) <= 100
    ):
        yield Found("SGLANG_DSV41_REASONING_EFFORT", f"{effort!r} is neither 1 to 100 nor low, high or max", "75")
    if not settings.served_model:
        yield Found("SERVED_MODEL_NAME", "is empty: clients need a model id", "deepseek-v4.1-flash")
    if settings.port == settings.dist_port:
        yield Found("DIST_PORT", f"is PORT's {settings.port} as well: the API and the ranks need one each")
    if settings.api_key is None and not _own_loopback(settings.host):
        yield Found("API_KEY", "is empty, so the API is open to everybody on the network", warning=True)
    elif settings.api_key is not None and len(settings.api_key.get_secret_value()) < 8:
        yield Found("API_KEY", "is shorter than 8 characters: easy to guess", warning=True)
    elif settings.api_key is not None and not re.fullmatch(r"[!-~]+", settings.api_key.get_secret_value()):
        yield Found("API_KEY", "holds a space or a character outside ASCII, which no HTTP header carries")


def _own_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _passed_through(settings: Settings) -> Iterator[Found]:
    pairs: dict[str, str] = {}
    for word in settings.extra_container_env:
        name, equals, value = word.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            yield Found("EXTRA_CONTAINER_ENV", f"{_short(word)} is not NAME=value")
            continue
        pairs[name] = value
    for name, value in pairs.items():
        if name in SECRET_NAMES or name in ("HUGGING_FACE_HUB_TOKEN",):
            yield Found("EXTRA_CONTAINER_ENV", f"holds {name}: a secret would be readable in docker inspect")
        elif name == "SGLANG_RAGGED_VERIFY_MODE" and value == "compact":
            yield Found(
                "EXTRA_CONTAINER_ENV", "SGLANG_RAGGED_VERIFY_MODE=compact breaks the row reads: static or cap-accept"
            )
        elif _expandable(value):
            yield Found(
                "EXTRA_CONTAINER_ENV",
                f"{name}: expandable_segments:True gives NaN for every prefill of more than 64 tokens",
            )
        elif name == "OFFLOAD_MODE" and value != "nvme":
            yield Found("EXTRA_CONTAINER_ENV", f"OFFLOAD_MODE={value} would push the model out: nvme is the only one")
        elif name in SETTINGS:
            yield Found("EXTRA_CONTAINER_ENV", f"holds {name}, which is a setting of its own: write it on its own line")
    for word in settings.extra_sglang_args:
        if word == "--api-key" or word.startswith("--api-key="):
            yield Found(
                "EXTRA_SGLANG_ARGS", "holds --api-key: a key there can be read in the process list; use API_KEY"
            )


def _short(word: str) -> str:
    return word if len(word) <= 24 else f"{word[:23]}…"


def _files(settings: Settings) -> Iterator[Found]:
    for name in (
        "MODEL_DIR",
        "COMMON_MODEL",
        "ENGRAM_DIR",
        "WORKER_DIR",
        "DSV41_PACKED_DIR",
        "NCCL_CONTAINER_DIR",
        "NCCL_PIP_SO",
    ):
        value = getattr(settings, name.lower())
        if not value.startswith("/"):
            yield Found(name, f"{value or 'nothing'} is no absolute path")
        elif value.rstrip("/") in (
            "",
            "/root",
            "/home",
            "/usr",
            "/var",
            "/etc",
            "/tmp",
            "/var/tmp",
            str(settings.home),
        ):
            yield Found(name, f"{value} is a folder that holds other things: name one of its own")
    for name in ("WORKER_ENGRAM_DIR", "WORKER_MODEL_DIR", "NCCL_HOST_DIR", "NCCL_WORKER_DIR", "SSH_IDENTITY"):
        value = getattr(settings, name.lower())
        if value and not value.startswith("/"):
            yield Found(name, f"{value} is no absolute path")
    for name in ("MODEL_DIR", "COMMON_MODEL", "ENGRAM_DIR", "WORKER_DIR", "WORKER_ENGRAM_DIR", "WORKER_MODEL_DIR"):
        if re.search(r"[:,\n]", getattr(settings, name.lower())):
            yield Found(name, "holds a colon, comma or line end, which Docker's mounts cannot carry")
    if not re.fullmatch(r"[0-9a-f]{7,40}", settings.hf_revision):
        yield Found("HF_REVISION", f"{settings.hf_revision!r} is no commit: 7 to 40 digits of 0-9 and a-f", "1bae0e1")
    if settings.base_digest and not re.fullmatch(r"sha256:[0-9a-f]{64}", settings.base_digest):
        yield Found("BASE_DIGEST", "is no digest: sha256: and 64 digits, or empty")
    if not settings.base_image:
        yield Found("BASE_IMAGE", "is empty", SETTINGS["BASE_IMAGE"].defaults["three"])
    for word in settings.build_args:
        if "=" not in word:
            yield Found("BUILD_ARGS", f"{_short(word)} is not NAME=value")
    dockerfile = settings.build_dockerfile
    if dockerfile and (dockerfile.startswith("/") or ".." in dockerfile.split("/")):
        yield Found("BUILD_DOCKERFILE", "must lie inside this folder")


def _fabric(settings: Settings) -> Iterator[Found]:
    gid = settings.nccl_ib_gid_index
    if gid and not re.fullmatch(r"-1|[0-9]{1,3}", gid):
        yield Found("NCCL_IB_GID_INDEX", f"{gid} is no GID index: empty finds it on each node", "")
    for device in settings.rdma_devices:
        if not re.fullmatch(r"[A-Za-z0-9_]+", device):
            yield Found("NCCL_IB_HCA", f"{device} is no RDMA device's name")
    if not settings.nccl_switchless_ring:
        return
    if settings.nnodes != 4:
        yield Found(
            "NCCL_SWITCHLESS_RING", f"is 1 with {settings.nnodes} Sparks: the ring is four Sparks and four cables", "0"
        )
    if settings.nccl_net != "IB" or settings.nccl_ib_disable:
        yield Found("NCCL_NET", "the ring needs NCCL_NET=IB and NCCL_IB_DISABLE=0", "IB")
    if not settings.nccl_host_dir:
        yield Found(
            "NCCL_HOST_DIR",
            "is empty: the ring needs the patched NCCL 2.30.7 on every rank, since stock NCCL fails at its tree set-up",
        )


RULES = (_example_values, _addresses, _topology, _memory, _engine, _passed_through, _files, _fabric)
