"""One stream a node: what runs there, and what it costs.

A POSIX sh prints a record a second with two short processes (grep and sleep) and none besides, but every SLOW_TICKS
and LIST_SECONDS; `benchmarks/sampler.py` measures its share of a core. nvidia-smi is a stream of its own (`gpu.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

INTERVAL_SECONDS = 1
SLOW_TICKS = 5
"""Rates and error counters of the RDMA devices (each asks the card's firmware) and swapping: every so many records."""
LIST_SECONDS = 30
"""How often devices are listed anew (a card may come with its cable) and file systems asked for space."""
SILENT_DISK_ROUNDS = 10
"""A file system that did not answer in two seconds (a dead mount) is left alone for so many listings."""
ERROR_COUNTERS = (
    "counters/symbol_error",
    "counters/link_downed",
    "counters/link_error_recovery",
    "counters/port_rcv_errors",
    "counters/local_link_integrity_errors",
    "hw_counters/out_of_sequence",
    "hw_counters/packet_seq_err",
    "hw_counters/local_ack_timeout_err",
    "hw_counters/rnr_nak_retry_err",
    "hw_counters/roce_adp_retrans_to",
)
"""Those whose growth means a bad cable, a flap, loss or a peer that is gone (not congestion marks, not discards)."""

# cd /proc: `grep -H` then prints short names. The pattern keeps numbers, states, and the meminfo lines that are used.
# A record is written at once: in two parts it would wake the follower twice.
_SCRIPT = r"""
cd /proc || exit 1
ib=../sys/class/infiniband
net=../sys/class/net
mem='Mem(Total|Free|Available)|Buffers|Cached|Swap(Total|Free)|AnonPages|Shmem'
mem="$mem|SReclaimable|SUnreclaim|PageTables|KernelStack|Percpu"
pattern="^ *[0-9]|^($mem):|^(cpu|full|pswpin|pswpout) "
tick=0
quiet=0
while :; do
  if [ $((tick % @LIST_TICKS@)) -eq 0 ]; then
    fast='uptime meminfo pressure/memory stat'
    slow=vmstat
    echo @devices
    for d in "$ib"/*; do
      [ -e "$d/ports/1/state" ] || continue
      name=- cage=-
      for each in "$d"/device/net/*; do
        [ -e "$each" ] || continue
        name=${each##*/}
        { read -r cage <"$net/$name/phys_port_name"; } 2>/dev/null || cage=-
        slow="$slow $net/$name/carrier_changes"
        break
      done
      echo "@device ${d##*/} $name ${cage:--}"
      fast="$fast $d/ports/1/state $d/ports/1/counters/port_xmit_data $d/ports/1/counters/port_rcv_data"
      slow="$slow $d/ports/1/rate"
      for each in @COUNTERS@; do slow="$slow $d/ports/1/$each"; done
    done
    echo @listed
    for each in ../sys/block/nvme*; do
      case $each in *nvme*c*n*) ;; *) [ -e "$each/stat" ] && fast="$fast $each/stat" ;; esac
    done
    if [ "$#" -gt 0 ]; then
      if [ "$quiet" -gt 0 ]; then quiet=$((quiet - 1))
      else
        echo @df
        timeout -s KILL 2 /bin/sh -c '
          for p; do
            while [ ! -e "$p" ] && [ -n "$p" ]; do p=${p%/*}; done
            df -PB1 -- "$p/"
          done' sh "$@" 2>/dev/null
        [ $? -eq 137 ] && quiet=@QUIET@
        echo @read
      fi
    fi
  fi
  if [ $((tick % @SLOW_TICKS@)) -eq 0 ]; then read=$(grep -sHE "$pattern" $fast $slow)
  else read=$(grep -sHE "$pattern" $fast)
  fi
  printf '%s\n@end\n' "$read" || exit 0
  tick=$((tick + 1))
  sleep @INTERVAL@
done
"""


def sampler_argv(folders: Sequence[str] = (), *, interval_seconds: int = INTERVAL_SECONDS) -> tuple[str, ...]:
    """What `NodeLink.lines` is given. `folders` are those whose file systems' free space is wanted.

    Its output is for `readings.sampler_stream`.
    """
    text = (
        _SCRIPT.replace("@LIST_TICKS@", str(max(1, LIST_SECONDS // interval_seconds)))
        .replace("@SLOW_TICKS@", str(SLOW_TICKS))
        .replace("@COUNTERS@", " ".join(ERROR_COUNTERS))
        .replace("@QUIET@", str(SILENT_DISK_ROUNDS))
        .replace("@INTERVAL@", str(interval_seconds))
    )
    return ("/bin/sh", "-c", text, "sparktui-sampler", *folders)
