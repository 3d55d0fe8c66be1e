"""Rules of the machines: addresses, the number of ranks, the fabric."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sparktui.cluster.gid import parse_pin
from sparktui.settings.model import Settings
from sparktui.settings.rule import Found, means_itself, shortened

EXPERT_COLUMNS = 2304
"""Width of one routed expert. Source: the checkpoint's config.json, moe_intermediate_size."""
EXPERT_SLICE_STEP = 128
"""The MXFP4 expert kernels take slices of this multiple. Source: SGLang 0.5.23."""
EXPERTS = 384
ATTENTION_HEADS = 64
OUTPUT_GROUPS = 8
DRAFT_EXPERTS = 128
_IN_WORDS = {3: "three", 6: "six"}
_PROTOCOL = "(LL|LL128|Simple)"
NCCL_SUBJECTS = frozenset({
    "INIT", "COLL", "P2P", "SHM", "NET", "GRAPH", "TUNING", "ENV", "ALLOC", "CALL", "PROXY", "NVLS", "BOOTSTRAP", "REG",
    "PROFILE", "RAS", "ALL",
})  # fmt: skip
"""Source: NCCL's user guide, NCCL_DEBUG_SUBSYS."""
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]*")


def addresses(settings: Settings) -> Iterator[Found]:
    if not settings.head_ip:
        yield Found("HEAD_IP", "is not set: write the head's address as the workers reach it")
    elif means_itself(settings.head_ip):
        yield Found(
            "HEAD_IP", f"{settings.head_ip} is this machine itself: other nodes must be able to reach this address"
        )
    workers = settings.worker_ips
    if not workers:
        yield Found("WORKER_IPS", "is not set: write the workers' addresses, in rank order")
    for address in workers:
        if means_itself(address):
            yield Found(
                "WORKER_IPS", f"{address} is the machine itself: other nodes must be able to reach this address"
            )
        elif address == settings.head_ip:
            yield Found("WORKER_IPS", f"{address} is the head's address too: each Spark has its own")
    if len(set(workers)) < len(workers):
        yield Found("WORKER_IPS", "names one address twice: each Spark has its own")
    fabric = settings.worker_fabric_ips
    if fabric and len(fabric) != len(workers):
        yield Found("WORKER_FABRIC_IPS", f"names {len(fabric)} for {len(workers)} workers: one for each, same order")
    servers = settings.nfs_server_ips
    if servers and len(servers) not in (1, len(workers)):
        yield Found("NFS_SERVER_IPS", f"names {len(servers)}: write one, or one for each of the {len(workers)} workers")
    for address in servers:
        if means_itself(address):
            yield Found("NFS_SERVER_IPS", f"{address} is the worker itself there: write the head's fabric address")


def worker_hosts(settings: Settings) -> Iterator[Found]:
    hosts, workers = settings.worker_hosts, settings.worker_ips
    if hosts and len(hosts) != len(workers):
        yield Found("WORKER_HOSTS", f"names {len(hosts)} and WORKER_IPS {len(workers)}: one for each, same order")
    if len({host.rpartition("@")[2] for host in hosts}) < len(hosts):
        yield Found("WORKER_HOSTS", "names one worker twice")
    for written in hosts:
        user, at, host = written.rpartition("@")
        if (at and not _USER.fullmatch(user)) or not _HOST.fullmatch(host):
            yield Found("WORKER_HOSTS", f"{shortened(written)} is neither a host nor user@host")
        elif means_itself(host):
            yield Found("WORKER_HOSTS", f"{host} is the head itself: name the worker")
        elif re.fullmatch(r"[^:]+:[0-9]+", host):
            yield Found("WORKER_HOSTS", f"{host}: a port belongs in your ssh config, below Host {host.split(':')[0]}")
    if settings.worker_user and not _USER.fullmatch(settings.worker_user):
        yield Found("WORKER_USER", f"{shortened(settings.worker_user)} is no user's name")


def node_count(settings: Settings) -> Iterator[Found]:
    workers = len(settings.worker_ips)
    if workers and settings.nnodes != workers + 1:
        if settings.origins.get("NNODES", "").startswith("profile"):
            profile = settings.profile
            yield Found("WORKER_IPS", f"names {workers}, but profile {profile.name} has {profile.nnodes - 1} workers")
        else:
            sentence = f"is {settings.nnodes}, but the head and {workers} workers are {workers + 1} Sparks"
            yield Found("NNODES", sentence, str(workers + 1))
    if settings.nnodes < 3:
        yield Found("NNODES", f"is {settings.nnodes}: 305 GiB of weights need three Sparks of 121.7 GiB at least")
    elif settings.tp_size != settings.nnodes:
        yield Found("TP_SIZE", f"is {settings.tp_size}: a Spark has one GPU, so it is NNODES", str(settings.nnodes))


def experts(settings: Settings) -> Iterator[Found]:
    tp, ep = settings.tp_size, settings.ep_size
    proposed = _fitting_groups(tp)
    if ep > tp or tp % ep:
        yield Found("EP_SIZE", f"is {ep}, which does not divide TP_SIZE={tp}", proposed)
    elif EXPERTS % ep:
        yield Found("EP_SIZE", f"is {ep}, which does not divide the model's {EXPERTS} experts", proposed)
    elif not slice_fits(tp, ep):
        columns = f"{EXPERT_COLUMNS * ep / tp:.6g} of an expert's {EXPERT_COLUMNS} columns"
        reason = f"is {ep}: a rank would hold {columns}, and the kernels need a multiple of {EXPERT_SLICE_STEP}"
        yield Found("EP_SIZE", reason, proposed)


def slice_fits(tp: int, ep: int) -> bool:
    """Whether the expert kernels can run a rank's slice of an expert."""
    columns = EXPERT_COLUMNS * ep
    return columns % tp == 0 and (columns // tp) % EXPERT_SLICE_STEP == 0 and EXPERTS % ep == 0


def _fitting_groups(tp: int) -> str | None:
    """What to propose: 1 where the slices fit (three Sparks), one group a rank otherwise."""
    wanted = (1, *range(tp, 1, -1))
    return next((str(ep) for ep in wanted if tp % ep == 0 and slice_fits(tp, ep)), None)


def padding(settings: Settings) -> Iterator[Found]:
    tp, ep = settings.tp_size, settings.ep_size
    whole = ATTENTION_HEADS % tp == 0 and OUTPUT_GROUPS % tp == 0
    if whole and DRAFT_EXPERTS % ep == 0:
        if settings.dsv41_tp_pad:
            yield Found("DSV41_TP_PAD", f"is 1: everything divides by {tp}, so nothing may be padded", "0")
    elif not settings.dsv41_tp_pad:
        what = f"{DRAFT_EXPERTS} draft experts do not divide by EP_SIZE={ep}"
        if not whole:
            what = f"{ATTENTION_HEADS} heads and {OUTPUT_GROUPS} groups do not divide by {_IN_WORDS.get(tp, tp)}"
        yield Found("DSV41_TP_PAD", f"is 0: {what}, so {_IN_WORDS.get(tp, tp)} Sparks need it", "1")
    if _fitting_groups(tp) is None:
        yield Found("TP_SIZE", f"is {tp}: no EP_SIZE fits it. The model runs on 3, 4, 6 or 8 Sparks")


def fabric(settings: Settings) -> Iterator[Found]:
    gid = settings.nccl_ib_gid_index
    if gid.strip() and parse_pin(gid) is None:
        yield Found("NCCL_IB_GID_INDEX", f"{shortened(gid)} is no GID index: empty reads it on each node", "")
    for name in ("FABRIC_IFACE", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        value = getattr(settings, name.lower())
        if not re.fullmatch(r"[=^]?[A-Za-z0-9_.,-]{1,120}", value):
            yield Found(name, f"{shortened(value) or 'nothing'} is no interface's name")
    if not settings.rdma_devices or not all(re.fullmatch(r"[A-Za-z0-9_]+", each) for each in settings.rdma_devices):
        yield Found("NCCL_IB_HCA", f"{shortened(settings.nccl_ib_hca) or 'nothing'} is no list of RDMA devices")
    if not re.fullmatch(rf"\^?{_PROTOCOL}(,{_PROTOCOL})*", settings.nccl_proto, re.IGNORECASE):
        reason = f"{shortened(settings.nccl_proto) or 'nothing'} is no list of LL, LL128 and Simple (^ leaves one out)"
        yield Found("NCCL_PROTO", reason, "^LL128")
    subjects = settings.nccl_debug_subsys.removeprefix("^").upper().split(",")
    if wrong := [each for each in subjects if each not in NCCL_SUBJECTS]:
        yield Found("NCCL_DEBUG_SUBSYS", f"{shortened(wrong[0]) or 'nothing'} is no subject of NCCL's log", "INIT,ENV")
    if not settings.nccl_switchless_ring:
        return
    if settings.nnodes != 4:
        yield Found(
            "NCCL_SWITCHLESS_RING", f"is 1 with {settings.nnodes} Sparks: a ring is four Sparks, four cables", "0"
        )
    if settings.nccl_net != "IB":
        yield Found("NCCL_NET", f"is {settings.nccl_net}: the ring needs IB", "IB")
    if settings.nccl_ib_disable:
        yield Found("NCCL_IB_DISABLE", "is 1: the ring needs RoCE", "0")
    if not settings.nccl_host_dir:
        yield Found(
            "NCCL_HOST_DIR",
            "is not set: stock NCCL fails on the ring, every rank needs the patched NCCL 2.30.7's folder",
        )


RULES = (addresses, worker_hosts, node_count, experts, padding, fabric)
