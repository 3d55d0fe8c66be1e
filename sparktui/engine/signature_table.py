"""Known failures: what a log or Docker's reply says, what that means, what to do. The most telling ones first.

The patterns are the engine's, driver's, NCCL's and Docker's own words; `{1}` in a text is the pattern's group.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Signature:
    """One known failure.

    Attributes:
        id: stable, for tests and bundles.
        consequence: true where the line shows that another rank failed first.
    """

    id: str
    pattern: re.Pattern[str]
    cause: str
    fix: str
    consequence: bool = False


def _s(id_: str, pattern: str, cause: str, fix: str, *, consequence: bool = False) -> Signature:
    return Signature(id_, re.compile(pattern), cause, fix, consequence)


_STORE = r"Engram rows: layer=\d+ rank=\d+ of \d+ (.+?): "
"""How the row store begins its lines; the group is the packed file, as the container calls it."""
_PAGE = r"(offset \d+ \(page \d+\)): "
_PACK_ANEW = (
    "move {1} away (/engram is this node's ENGRAM_DIR, on a worker its WORKER_ENGRAM_DIR; the pack step replaces no "
    "file), then sparktui pack"
)

SIGNATURES: tuple[Signature, ...] = (
    # the overlay names its own failures
    _s("own", r"\[spark\] (?:FATAL|ERROR):? (?:rank=\d+ |NFS )?(.+?)(?:\. Next: (.+?)\.?)?$", "{1}", "{2}"),
    # the row store's last words: the process ends with them (overlay/row_store/store.cpp)
    _s(
        "engram.drive",
        _STORE + _PAGE + r"read failed twice: (.+? \(errno (?:5|61|84|121)\))",
        "the drive cannot read {1} at {2}: {3}",
        "dmesg and the drive's health (nvme smart-log) on this node first; then " + _PACK_ANEW,
    ),
    _s(
        "engram.read",
        _STORE + _PAGE + r"read failed twice: (.+? \(errno \d+\))",
        "{1} could not be read at {2}: {3}",
        "dmesg on this node says why. The file may be good: sparktui serve again; where it fails at the same offset, "
        + _PACK_ANEW,
    ),
    _s(
        "engram.cut-short",
        _STORE + _PAGE + r"read cut short twice: (\d+ of \d+ bytes)",
        "{1} was cut while it was in use: at {2} a read gave {3}",
        _PACK_ANEW,
    ),
    _s(
        "engram.damaged",
        _STORE + _PAGE + r"((?:wrong checksum|the page there is another page), twice \(errno \d+\))",
        "{1} is damaged at {2}: {3}",
        _PACK_ANEW + "; where that happens again, dmesg and the drive's health (nvme smart-log)",
    ),
    _s(
        "engram.ring",
        _STORE + r"io_uring failed: (.+? \(errno \d+\))",
        "the kernel refused to read {1} through io_uring: {2}",
        "the file is not at fault: see in dmesg what this node is short of (memory, mostly), then sparktui serve",
    ),
    _s(
        "engram.bad-id",
        _STORE + r"(id -?\d+ at place \d+ is outside the table of \d+ rows)",
        "the engine asked {1} for a row that no table has: {2}",
        "the file is not at fault: sparktui doctor compares image and checkpoint of the nodes; keep this log "
        "(sparktui logs)",
    ),
    _s(
        "engram.forked",
        _STORE + r"opened by process (\d+), used in another",
        "{1} was opened by process {2} and used by another",
        "the file is not at fault: the image's overlay and engine do not fit each other: sparktui build",
    ),
    # memory
    _s(
        "driver.no-memory",
        r"NV_ERR_NO_MEMORY",
        "the GPU driver is out of memory",
        "do not try again as it is: a Spark in this state often needs a power cycle. Then a smaller "
        "CHUNKED_PREFILL_SIZE or CONTEXT_LENGTH, and nothing else on the node",
    ),
    _s(
        "kv.no-memory",
        r"Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=([\d.]*\d)"
        r"(?:.*?above ([\d.]*\d))?",
        "the weights leave no memory for the KV pool at a fraction of {1}",
        "close other users of this node's memory and drop its page cache; the fraction has to be above {2}",
    ),
    _s(
        "kv.no-room",
        r"(?i)no room\b.*within the available ([\d.]*\d) Gi?B",
        "the pinned KV pool does not fit: {1} GB are there for it",
        "lower MAX_TOTAL_TOKENS, or free memory on this node and serve again",
    ),
    _s(
        "memory.unbalanced",
        r"memory capacity is unbalanced",
        "one rank has less free memory than the others before the weights are loaded",
        "sparktui doctor: see which Spark has other programs or a driver that still holds memory",
    ),
    _s(
        "rdma.no-registration",
        r"(?i)ibv_reg_mr\w*.{0,120}(?:Cannot allocate memory|ENOMEM|\b12\b)|reg_mr.{0,80}fail",
        "the network card could not register memory, though memory is free",
        "see the CMA row of sparktui doctor: owners report this of kernel 7.0.0-1019-nvidia and go back to an older "
        "kernel or boot with kho=off. Locked memory must be unlimited in the container",
    ),
    _s(
        "cuda.no-memory",
        r"torch\.(?:cuda\.)?OutOfMemoryError|CUDA out of memory|cudaErrorMemoryAllocation|CUDA error: out of memory",
        "the GPU ran out of memory",
        "a smaller CHUNKED_PREFILL_SIZE or CONTEXT_LENGTH; keep other programs off this Spark",
    ),
    # this model
    _s(
        "spec.variable-verify",
        r"engram target-verify expects one equal block per request",
        "drafts of different lengths were verified together, which Engram cannot do",
        "remove dspark_sps.json from the state folder and SGLANG_RAGGED_VERIFY_MODE from the settings",
    ),
    _s(
        "logits.nan",
        r"probability tensor contains either .*inf.*nan",
        "the model's logits are not numbers",
        "PYTORCH_CUDA_ALLOC_CONF must not have expandable_segments:True",
    ),
    _s(
        "engram.wrong-shard",
        r"(?i)engram.{0,120}(?:mismatch|does not match|wrong rank|checksum|corrupt)|Engram retrieval failed",
        "the packed Engram rows are another rank's, another checkpoint's or damaged",
        "sparktui pack says which file is wrong and replaces none: move it away (this line or the log names it), then "
        "sparktui pack",
    ),
    _s(
        "engram.not-warm",
        r"Engram staging .* must be warmed before graph capture",
        "the Engram store was not ready when the CUDA graphs were captured",
        "the overlay of the image is older than this program: sparktui build",
    ),
    _s(
        "tp.not-divisible",
        r"\b(\d+) is not divisible by (\d+)",
        "{1} does not divide by {2} ranks",
        "DSV41_TP_PAD=1 on three Sparks, 0 on four",
    ),
    # network between ranks
    _s(
        "gloo.no-address",
        r"Unable to find address for: ?(\S+)",
        "the interface {1} is absent or has no IPv4 address on this node",
        "set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME to an interface that has an address on every node",
    ),
    _s(
        "nccl.no-interface",
        r"Bootstrap ?: no socket interface found|NCCL WARN .*no (?:usable )?socket interface",
        "NCCL finds no interface of the name in NCCL_SOCKET_IFNAME on this node",
        "set NCCL_SOCKET_IFNAME to an interface that has an address on every node",
    ),
    _s(
        "rdma.peer",
        r"ibv_modify_qp.{0,160}(?:errno |error |status )?\b(110|61)\b"
        r"|ibv_modify_qp.{0,120}(?:timed out|No data available)",
        "two Sparks do not reach each other over RDMA",
        "look at the GID table first, then at the cables: port 0 of one Spark goes to port 1 of the next",
    ),
    _s(
        "nccl.system",
        r"unhandled system error|ncclSystemError",
        "NCCL could not set up its connections",
        "in this order: GID index of each rank, link and MTU of both ends; a ring of four needs the patched NCCL on "
        "every rank",
    ),
    _s(
        "nccl.duplicate",
        r"Duplicate NCCL runtime found",
        "two NCCL libraries are in the container",
        "leave NCCL_HOST_DIR empty, or for the ring use the overlay mount (NCCL_PIP_SO)",
    ),
    _s(
        "rendezvous.missing",
        r"Timed out after (\d+) seconds waiting for clients\. (\d+)/(\d+) clients joined",
        "only {2} of {3} ranks came to the rendezvous",
        "find the rank that is missing: sparktui status, then its log",
        consequence=True,
    ),
    _s(
        "rendezvous.no-head",
        r"client socket has (?:timed out|failed).{0,120}connect to \(?([^),\s]+(?:, ?\d+)?)",
        "this rank could not reach the head's rendezvous at {1}",
        "HEAD_IP must be an address that workers reach, DIST_PORT must not be blocked, and the head must have started",
        consequence=True,
    ),
    _s(
        "port.in-use",
        r"(?i)address already in use(?:.{0,60}?[:(, ](\d{2,5})\b)?",
        "a port that the engine needs is in use",
        "another server or a second cluster runs on this node: sparktui stop, or other PORT and DIST_PORT",
    ),
    # image and container
    _s(
        "image.architecture",
        r"(?i)exec format error",
        "the image is for another processor than this node has",
        "the image has to be built for this node's processor (Sparks are arm64): sparktui build",
    ),
    _s(
        "docker.cdi",
        r"(?i)Container Runtime Hook directly.*not supported|\bcdi\b.*(?:mode|--gpus)",
        "the NVIDIA container toolkit is in CDI mode, where --gpus is not supported",
        'in /etc/nvidia-container-runtime/config.toml set mode = "auto", then restart Docker',
    ),
    _s(
        "docker.no-runtime",
        r"unknown or invalid runtime name: nvidia|could not select device driver .*\[\[gpu\]\]",
        "Docker does not know the NVIDIA runtime",
        "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker "
        "(stops running containers)",
    ),
    _s(
        "docker.no-infiniband",
        r'(?i)custom device "?/dev/infiniband"?.*no such file|/dev/infiniband.*no such file',
        "this node has no /dev/infiniband",
        "plug the ConnectX cable in and wait 20 seconds; without a cable the card is switched off",
    ),
    _s(
        "docker.no-image",
        r"No such image: ?(\S+)",
        "image {1} is not on this node",
        "sparktui build",
    ),
    _s(
        "docker.name-taken",
        r'The container name "/?([\w.-]+)" is already in use',
        "a container named {1} exists already",
        "sparktui status shows whose it is; sparktui stop removes ours",
    ),
    _s(
        "docker.volume-busy",
        r"volume is in use",
        "the weights volume is in use and cannot be made anew",
        "sparktui stop, then sparktui share",
    ),
    _s(
        "nfs.mount",
        r"failed to mount local volume|error while mounting volume",
        "this node could not mount the weights over NFS",
        "sparktui share; the exporter has to run on the head and NFS_CLIENTS has to name this node's fabric address",
    ),
    _s(
        "nfs.stale",
        r"(?i)stale (?:NFS )?file handle",
        "the NFS mount of the weights is stale: the exporter was replaced",
        "sparktui stop, then sparktui share, then sparktui serve",
    ),
    _s(
        "gpu.no-driver",
        r"No CUDA GPUs are available|CUDA driver version is insufficient|Found no NVIDIA driver",
        "the container sees no usable GPU",
        "sparktui doctor: driver, nvidia-smi and the container toolkit of this node",
    ),
    # engine
    _s(
        "rust.build",
        r"cargo --version",
        "SGLang tries to compile a Rust part, which needs the internet",
        "EXTRA_CONTAINER_ENV needs SGLANG_RUST_BUILD_MODE=never",
    ),
    _s(
        "engine.option",
        r"launch_server\.py: error: (.+)|unrecognized arguments: (.+)|argument (--\S+: invalid choice: \S+)",
        "the engine does not know an option: {any}",
        "EXTRA_SGLANG_ARGS, or an image with another engine version: sparktui doctor compares them",
    ),
    _s(
        "checkpoint.unseen",
        r"(?i)(?:can't load|cannot find|not found|no such file).{0,160}(?:config\.json|safetensors|/models/)"
        r"|(?:config\.json|safetensors|/models/\S*).{0,160}(?:does not exist|no such file)",
        "this rank does not see the checkpoint",
        "sparktui share (on a worker) or sparktui download (on the head)",
    ),
    _s(
        "checkpoint.damaged",
        r"SafetensorError|HeaderTooLarge|InvalidHeader|MetadataIncompleteBuffer",
        "a file of the checkpoint is damaged or cut short",
        "sparktui download compares all sizes and fetches what is wrong",
    ),
    _s(
        "disk.full",
        r"(?i)no space left on device",
        "a disk of this node is full",
        "sparktui doctor shows the disks; docker system df shows what images and build cache take",
    ),
    _s(
        "module.missing",
        r"ModuleNotFoundError: No module named '([^']+)'",
        "the image lacks the Python module {1}",
        "sparktui build",
    ),
    _s(
        "library.missing",
        r"(?:ImportError|OSError): (\S+\.so[.\d]*): cannot open shared object file",
        "the image lacks the library {1}",
        "sparktui build; a library of your own in NCCL_HOST_DIR must exist on every node",
    ),
    # the overlay's guard: the engine lives on, so that whatever ended it later comes first
    _s(
        "memory.guard",
        r"\[spark\] WARNING memory_guard: the head had (\d+) MiB of memory left, DSV41_MEMGUARD_MIB is (\d+)",
        "the memory guard ended all requests: the head had {1} MiB left, less than its floor of {2}",
        "end other programs on the head; shorter prompts; a smaller CHUNKED_PREFILL_SIZE or MAX_TOTAL_TOKENS, then "
        "sparktui serve",
    ),
    _s(
        "watchdog",
        r"(?i)\bwatchdog timeout\b",
        "the engine's watchdog ended it: a step did not finish in time",
        "find the first rank that failed or stands still; the first steps after a build compile kernels and are slow",
        consequence=True,
    ),
    _s(
        "peer.lost",
        r"(?i)connection (?:closed|reset) by peer|Broken pipe|remote process exited|recvValue.{0,40}failed"
        r"|Connection was likely closed",
        "another rank went away",
        "look at the other ranks first: sparktui status",
        consequence=True,
    ),
)
"""Order is precedence: the first signature that matches any line is the answer."""
