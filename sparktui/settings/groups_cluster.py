"""Settings of the machines: addresses, ssh, folders, images, NFS, fabric."""

from __future__ import annotations

from sparktui.settings.fields import (
    Address,
    Addresses,
    Arguments,
    CommaWords,
    Group,
    Secret,
    Size,
    Switch,
    Whole,
    Words,
    setting,
)

NODES = "Sparks"
SSH = "SSH"
FILES = "Folders and the checkpoint"
IMAGES = "Images"
NFS = "Weights over NFS"
FABRIC = "Fabric and NCCL"


class NodeSettings(Group):
    head_ip: Address = setting(
        NODES, "The head's address as the workers reach it; never a loopback. Rank 0 listens here for the others.", ""
    )
    worker_ips: Addresses = setting(
        NODES, "The workers' addresses as the head reaches them; the order is the rank, the first is rank 1.", ""
    )
    worker_hosts: Words = setting(
        NODES,
        "What ssh is given for each worker, same order: an alias of your ssh config, a name or an address; "
        "user@host where a worker has a user of its own. Empty: WORKER_IPS.",
        "",
    )
    nnodes: Whole = setting(
        NODES, "Sparks, the head included: one more than there are workers.", "3", four="4", low=1, high=64
    )
    tp_size: Whole = setting(
        NODES, "Tensor-parallel ranks: one a Spark, so the same as NNODES.", "3", four="4", low=1, high=64
    )
    ep_size: Whole = setting(
        NODES,
        "Expert-parallel groups. 2304 / (TP_SIZE / EP_SIZE) is each rank's slice of an expert and must be a multiple "
        "of 128: 1 fits three Sparks; four take 4 (or 2). The recipe published 1 for four, with an image of its own; "
        "SGLang 0.5.23 has no kernel for that slice of 576.",
        "1",
        four="4",
        low=1,
        high=64,
    )
    dsv41_tp_pad: Switch = setting(
        NODES,
        "Pads heads, groups and draft experts so that they divide by three: 1 on three Sparks, 0 on four.",
        "1",
        four="0",
    )
    host: str = setting(NODES, "The address that the API listens on, on the head.", "0.0.0.0")
    port: Whole = setting(
        NODES, "The API's port on the head. Two clusters cannot share a head's ports.", "8888", low=1, high=65535
    )
    dist_port: Whole = setting(NODES, "The port on HEAD_IP where the ranks meet.", "20000", low=1, high=65535)


class SshSettings(Group):
    worker_user: str = setting(
        SSH, "The workers' user where WORKER_HOSTS names none. Empty: what your ssh config says.", ""
    )
    worker_pass: Secret = setting(
        SSH, "Password for workers where no key works yet. Better empty: keys are tried first.", "", secret=True
    )
    ssh_identity: str = setting(
        SSH, "The private key to use. Empty: your agent, your ssh config and the usual key files, in that order.", ""
    )


class FileSettings(Group):
    model_dir: str = setting(
        FILES, "The checkpoint's folder on the head (476 GiB).", "$HOME/NewModels/DeepSeek-V4.1-Flash-1017"
    )
    common_model: str = setting(
        FILES, "A link to MODEL_DIR, at the same path on every node.", "/var/tmp/DeepSeek-V4.1-Flash-1017"
    )
    worker_model_dir: str = setting(
        FILES, "With NFS_SHARE=0: the checkpoint's folder on each worker. Empty: the same path as MODEL_DIR.", ""
    )
    engram_dir: str = setting(FILES, "Packed Engram rows on the head's own NVMe (about 65 GiB).", "$HOME/dsv41-engram")
    worker_dir: str = setting(
        FILES, "Our folder on each worker: state and Engram rows.", "$HOME/dsv41-3x-spark", four="$HOME/dsv41-4x-spark"
    )
    worker_engram_dir: str = setting(
        FILES, "Packed Engram rows on each worker's own NVMe. Empty: engram inside WORKER_DIR.", ""
    )
    dsv41_packed_dir: str = setting(
        FILES, "Where the packed rows are inside the container.", "/engram", in_examples=False
    )
    hf_repo: str = setting(FILES, "The checkpoint on the Hugging Face hub.", "deepseek-ai/DeepSeek-V4.1-Flash-1017")
    hf_revision: str = setting(
        FILES, "Its commit, at least seven digits; download asks the hub for the full one and records it.", "1bae0e1"
    )
    hf_endpoint: str = setting(FILES, "Another hub or mirror, as a URL. Empty: the public one.", "", in_examples=False)
    hf_token: Secret = setting(
        FILES, "Your Hugging Face token; taken from the environment where the file has none.", "", secret=True
    )
    expected_shards: Whole = setting(
        FILES, "Weight files of the checkpoint.", "48", low=1, high=10_000, in_examples=False
    )


class ImageSettings(Group):
    image: str = setting(
        IMAGES, "The name of the image that is built and served.", "dsv41-3x-spark:local", four="dsv41-4x-spark:local"
    )
    base_image: str = setting(IMAGES, "The SGLang image that ours is built on.", "lmsysorg/sglang:v0.5.23")
    base_digest: str = setting(
        IMAGES,
        "The base's digest, sha256:… ; empty until the first build resolves it, shows it and writes it here.",
        "",
    )
    build_on: str = setting(
        IMAGES,
        "head builds once and ships to each worker what it lacks; each builds on every node.",
        "head",
        choices=("head", "each"),
    )
    build_dockerfile: str = setting(
        IMAGES,
        "Another Dockerfile, relative to this folder and inside it. Empty: the one in overlay/.",
        "",
        in_examples=False,
    )
    build_args: Arguments = setting(
        IMAGES, "Arguments of the build as NAME=value, such as a pip mirror.", "", in_examples=False
    )
    pull_timeout: Whole = setting(
        IMAGES,
        "How long a pull may be silent; 0 is no limit.",
        "0",
        unit="seconds",
        low=0,
        high=86_400,
        in_examples=False,
    )
    build_timeout: Whole = setting(
        IMAGES,
        "How long a build may be silent; 0 is no limit.",
        "0",
        unit="seconds",
        low=0,
        high=86_400,
        in_examples=False,
    )
    shm_size: Size = setting(IMAGES, "Shared memory of the engine's container.", "32g", unit="size")


class NfsSettings(Group):
    nfs_share: Switch = setting(
        NFS, "1: the head exports the checkpoint, workers mount it. 0: every node has a complete copy of its own.", "1"
    )
    nfs_server: str = setting(
        NFS,
        "Who exports: the kernel's NFS server, or ganesha where the head's kernel has none.",
        "kernel",
        choices=("kernel", "ganesha"),
    )
    nfs_server_ips: Addresses = setting(
        NFS,
        "The head's fabric address that workers mount from: one for all, or one a worker in rank order. "
        "Empty: the head's address on the route to each worker.",
        "",
    )
    worker_fabric_ips: Addresses = setting(NFS, "The workers' ConnectX addresses, in rank order. Empty: not known.", "")
    nfs_clients: CommaWords = setting(
        NFS,
        "Addresses and networks that may mount, with commas. Empty: the workers' addresses of WORKER_IPS and "
        "WORKER_FABRIC_IPS.",
        "",
    )
    nfs_volume: str = setting(NFS, "The Docker volume on the workers.", "dsv41-weights", in_examples=False)


class FabricSettings(Group):
    fabric_iface: str = setting(FABRIC, "The ConnectX network interface, as `ip link` names it.", "enp1s0f1np1")
    nccl_socket_ifname: str = setting(FABRIC, "The interface NCCL makes its first contact over.", "enP7s7")
    gloo_socket_ifname: str = setting(
        FABRIC, "The interface Gloo uses; it needs an IPv4 address on every node.", "enP7s7"
    )
    nccl_ib_hca: str = setting(
        FABRIC,
        "The RDMA devices, with commas.",
        "rocep1s0f0,rocep1s0f1",
        four="rocep1s0f0,roceP2p1s0f0",
        ring="rocep1s0f0,rocep1s0f1,roceP2p1s0f0,roceP2p1s0f1",
    )
    nccl_net: str = setting(FABRIC, "NCCL's transport; IB is RoCE.", "IB", choices=("IB", "Socket"))
    nccl_ib_disable: Switch = setting(
        FABRIC, "1 turns RoCE off: for a test, far too slow to serve.", "0", in_examples=False
    )
    nccl_p2p_disable: Switch = setting(FABRIC, "No peer-to-peer copies: a Spark has one GPU.", "1", in_examples=False)
    nccl_shm_disable: Switch = setting(FABRIC, "No shared-memory transport: one rank a node.", "1", in_examples=False)
    nccl_buffsize: Whole = setting(
        FABRIC,
        "NCCL's buffer a channel. NCCL's own 4 MiB take 4.7 GiB of GPU memory a node.",
        "1048576",
        unit="bytes",
        low=65_536,
        high=67_108_864,
    )
    nccl_ll128_buffsize: Whole = setting(
        FABRIC, "The same for LL128; -2 is NCCL's own.", "262144", unit="bytes", low=-2, high=67_108_864
    )
    nccl_proto: str = setting(FABRIC, "NCCL's protocols; ^ leaves one out.", "^LL128")
    nccl_max_nchannels: Whole = setting(FABRIC, "NCCL channels at most.", "8", ring="4", low=1, high=64)
    nccl_ib_gid_index: str = setting(
        FABRIC,
        "The RoCE v2 GID. Empty: read on each node at every serve, since it moves; a number is used as it is.",
        "",
        in_examples=False,
    )
    nccl_debug: str = setting(
        FABRIC, "NCCL's log.", "WARN", choices=("VERSION", "WARN", "INFO", "ABORT", "TRACE"), in_examples=False
    )
    nccl_debug_subsys: str = setting(FABRIC, "The subjects of that log.", "INIT,ENV", in_examples=False)
    nccl_host_dir: str = setting(
        FABRIC,
        "The head's folder with an NCCL library of your own. Empty: the image's. The ring needs the patched one.",
        "",
    )
    nccl_worker_dir: str = setting(FABRIC, "The same folder on workers. Empty: the same path as on the head.", "")
    nccl_container_dir: str = setting(FABRIC, "Where it is mounted.", "/nccl", in_examples=False)
    nccl_pip_so: str = setting(
        FABRIC,
        "The image's own NCCL file, which the ring's patched one is mounted over.",
        "/opt/sglang/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2",
        in_examples=False,
    )
    nccl_switchless_ring: Switch = setting(
        FABRIC, "1: four Sparks in a ring of four cables, without a switch.", "0", ring="1"
    )
