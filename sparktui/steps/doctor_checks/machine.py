"""Which machine a node is: architecture, GPU and who uses it, kernel, login."""

from __future__ import annotations

from collections.abc import Iterator

from sparktui.events import Finding, State
from sparktui.readings.host import BAD_RDMA_KERNELS, dgx_os_version, parse_release, parse_uname
from sparktui.readings.meminfo import parse_meminfo
from sparktui.readings.nvidia_smi import GPU_FIELDS_SHORT, Gpu, parse_compute_apps, parse_gpus, trouble
from sparktui.steps.amounts import bytes_text
from sparktui.steps.doctor_checks.report import NodeReport


def check_login(report: NodeReport) -> Iterator[Finding]:
    """ssh.login, ssh.noise. A node that is only slow is UNKNOWN, one that refuses is FAIL."""
    failure = report.failure
    if failure is not None:
        slow = type(failure).__name__ == "DeadlineExceeded"
        what = "no answer" if slow else failure.what
        cause = failure.what if slow else ""
        state = State.UNKNOWN if slow else State.FAIL
        yield report.finding(
            "ssh.login", state, what, cause=cause, fix=failure.fix, seen_from="addresses are as seen from this head"
        )
        return
    if report.node.is_head:
        yield report.finding("ssh.login", State.OK, "this machine: no ssh needed")
    else:
        yield report.finding("ssh.login", State.OK, report.login or f"{report.node.ssh_host} answers")
    for text in report.login_warnings:
        check = "ssh.agent" if "agent" in text else "ssh.key"
        yield report.finding(check, State.WARN, text)
    if report.probe.noise_lines:
        yield report.finding(
            "ssh.noise",
            State.WARN,
            f"{report.node.name} prints {report.probe.noise_lines} lines on login; rsync and scp will fail there",
            fix='let ~/.bashrc print only in interactive shells: begin it with [ -z "$PS1" ] && return',
        )


def check_architecture(report: NodeReport) -> Iterator[Finding]:
    """arch: a Spark is known by aarch64 and its GPU's name, never by its maker."""
    machine = report.machine
    if machine is None:
        yield report.unknown("arch", "uname", "the architecture")
        return
    system = parse_release(report.probe.text("release") or "")
    dgx = dgx_os_version(system)
    name = f"DGX OS {dgx}" if dgx else system.get("PRETTY_NAME", "")
    kernel = parse_uname(report.probe.text("uname") or "").kernel
    detail = ", ".join(filter(None, (machine, name, f"kernel {kernel}" if kernel else "")))
    gpus = _gpus(report)
    if report.is_arm and any(gpu.is_gb10 for gpu in gpus):
        yield report.finding("arch", State.OK, f"DGX Spark: {detail}", machine=machine, kernel=kernel)
    elif report.is_arm and not gpus:
        yield report.finding("arch", State.OK, detail, machine=machine, kernel=kernel)
    else:
        what = f"not a DGX Spark: {detail}"
        yield report.finding("arch", State.WARN, what, cause="published figures do not apply here", machine=machine)


def check_kernel(report: NodeReport) -> Iterator[Finding]:
    """kernel.rdma: the kernel whose memory registration fails, by its sign in meminfo or by its name."""
    memory = parse_meminfo(report.probe.text("meminfo") or "")
    kernel = parse_uname(report.probe.text("uname") or "").kernel
    lost = memory is not None and memory.cma_is_lost is True
    named = kernel in BAD_RDMA_KERNELS
    if not lost and not named:
        return
    off = report.settings.nccl_ib_disable
    state = State.INFO if off else State.FAIL if lost else State.WARN
    yield report.finding(
        "kernel.rdma",
        state,
        f"known bad kernel for RDMA registration: {kernel}",
        cause="CmaFree is larger than CmaTotal" if lost else "owners report ENOMEM in ibv_reg_mr on it",
        fix="owners' advice: boot an older kernel, or add kho=off to the kernel's command line",
        kernel=kernel,
    )


def check_gpu(report: NodeReport) -> Iterator[Finding]:
    """gpu.present, gpu.busy."""
    gpus = _gpus(report)
    if not gpus:
        why = trouble(report.probe.all_text("gpu"), report.probe.status("gpu") or 0)
        if report.probe.status("gpu") is None:
            yield report.unknown("gpu.present", "gpu", "nvidia-smi")
        elif report.is_arm:
            state = State.UNKNOWN if report.probe.hung("gpu") else State.FAIL
            fix = (
                "power the Spark off, unplug its adapter for a minute, start it"
                if report.probe.hung("gpu")
                else "nvidia-smi -L"
            )
            yield report.finding("gpu.present", state, why or "nvidia-smi lists no GPU", fix=fix)
        else:
            what = f"no GPU: {why or 'nvidia-smi lists none'}"
            yield report.finding("gpu.present", State.WARN, what, cause="only an engine on the CPU can run here")
        return
    first = gpus[0]
    driver = f", driver {first.driver_version}" if first.driver_version else ""
    yield report.finding("gpu.present", State.OK, f"{first.name or 'GPU'}{driver}", gpus=len(gpus))
    apps = parse_compute_apps(report.probe.text("gpu.apps") or "") if report.probe.status("gpu.apps") == 0 else None
    if apps is None:
        yield report.unknown("gpu.busy", "gpu.apps", "who uses the GPU")
    elif apps:
        rows = [{"pid": each.pid, "name": each.name, "bytes": each.used_bytes} for each in apps]
        names = ", ".join(f"{each.name or 'pid'} ({each.pid}, {bytes_text(each.used_bytes)})" for each in apps)
        serving = report.docker is not None and any(each.ours for each in report.docker.containers)
        yield report.finding(
            "gpu.busy",
            State.INFO if serving else State.WARN,
            f"the GPU is in use: {names}",
            fix="" if serving else "end these programs before serve (FORCE=1 lets serve ignore them)",
            processes=rows,
        )
    else:
        yield report.finding("gpu.busy", State.OK, "nobody uses the GPU")


def _gpus(report: NodeReport) -> tuple[Gpu, ...]:
    """By the long list of fields, or by the short one where this driver does not know a name in it."""
    full = parse_gpus(report.probe.parts.get("gpu", ""))
    return full or parse_gpus(report.probe.parts.get("gpu.short", ""), GPU_FIELDS_SHORT)
