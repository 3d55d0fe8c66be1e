"""What the exporter is told, as text: /etc/exports for the kernel's server, a configuration for nfs-ganesha. Pure.

Read-only, NFSv4 only, the folder itself as the root, for the named clients alone. Root is not squashed: a checkpoint
downloaded with a tight umask must be readable by the engine, which is root in its container, and nothing can be written
anyway.
"""

from __future__ import annotations

import ipaddress
import re


def client_list(text: str) -> tuple[str, ...]:
    """NFS_CLIENTS (addresses and networks between commas or spaces), checked. Raises ValueError."""
    clients = []
    networks: dict[int, list[ipaddress.IPv4Network | ipaddress.IPv6Network]] = {4: [], 6: []}
    for word in re.split(r"[,\s]+", text.strip()):
        if not word:
            continue
        try:
            network = ipaddress.ip_network(word, strict=False)
        except ValueError as error:
            raise ValueError(f"NFS_CLIENTS: {word} is no address and no network") from error
        if "%" in word:  # what follows is free text
            raise ValueError(f"NFS_CLIENTS: {word} has a zone")
        networks[network.version].append(network)
        clients.append(word)
    for each in networks.values():
        if any(network.prefixlen == 0 for network in ipaddress.collapse_addresses(each)):  # type: ignore[type-var]
            raise ValueError("NFS_CLIENTS: these networks together mean everybody")
    if not clients:
        raise ValueError("NFS_CLIENTS is empty")
    return tuple(dict.fromkeys(clients))


def kernel_exports(folder: str, clients: tuple[str, ...]) -> str:
    """One line for /etc/exports. `folder` must not hold spaces (it is the exporter's own mount point)."""
    options = "ro,sync,no_subtree_check,no_root_squash,insecure,fsid=0"
    return folder + "".join(f" {client}({options})" for client in clients) + "\n"


def ganesha_config(folder: str, clients: tuple[str, ...], port: int, state: str) -> str:
    """A whole ganesha.conf. `state` is a writable folder for its recovery notes."""
    return f"""NFS_CORE_PARAM {{
    Protocols = 4;
    NFS_Port = {port};
    Enable_NLM = false;
    Enable_RQUOTA = false;
    Enable_UDP = false;
}}
NFSV4 {{
    Minor_Versions = 0, 1, 2;
    Graceless = true;
    Only_Numeric_Owners = true;
    RecoveryBackend = fs;
    RecoveryRoot = {state};
}}
EXPORT {{
    Export_Id = 1;
    Path = {folder};
    Pseudo = /;
    Protocols = 4;
    Transports = TCP;
    SecType = sys;
    Squash = No_Root_Squash;
    Access_Type = None;
    FSAL {{ Name = VFS; }}
    CLIENT {{ Clients = {", ".join(clients)}; Access_Type = RO; }}
}}
"""
