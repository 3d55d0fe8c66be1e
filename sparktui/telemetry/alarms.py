"""What a person should look at now: pure rules over a picture, with hysteresis, so that nothing flaps.

An alarm is raised at one bound and ends at a kinder one, after its condition has been away for a while. Bounds are
those of owners' reports (facts: memory wedges, link flaps, clock latch); the cases are named beside each rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from sparktui.telemetry.sample import (
    Alarm,
    ClusterSnapshot,
    EndpointState,
    Freshness,
    Life,
    NodeSample,
    PortReading,
    RankLife,
    Serving,
)

GIB = 1024**3
RANKS, NO_CONTAINER, UNSEEN = "endpoint.ranks", "endpoint.container", "endpoint.unseen"
ABSENT_SECONDS = 45.0
"""Longer than `sparktui stop` waits for an engine to end."""
UNSEEN_SECONDS = 12.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds. `available` is MemAvailable, `free` MemFree.

    A head of three Sparks is meant to run with about 6 GiB available: shares of the total would always be crossed.
    """

    available_warn_bytes: int = 4 * GIB
    available_severe_bytes: int = 2 * GIB
    free_warn_bytes: int = 3 * GIB // 2
    free_severe_bytes: int = 3 * GIB // 4
    stalled_percent: float = 10.0
    ease: float = 1.15
    """An alarm ends when the value is better than its bound by this factor."""
    hold_seconds: float = 10.0
    """It also stays for this long after the value has become good."""
    errors_hold_seconds: float = 120.0
    latch_seconds: float = 20.0
    guard_hold_seconds: float = 300.0


@dataclass(frozen=True, slots=True)
class Rule:
    """What holds at one moment.

    Attributes:
        holds: the bound is crossed.
        clear: the value is on the kinder side; between the two, an alarm stays as it was.
        after_seconds: it must hold for so long first.
        hold_seconds: it stays for so long after it is clear.
    """

    alarm: Alarm
    holds: bool
    clear: bool
    after_seconds: float = 0.0
    hold_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class _Kept:
    alarm: Alarm
    since: float
    seen_at: float
    raised: bool


@dataclass(frozen=True, slots=True)
class AlarmBook:
    """The alarms and what they need to be remembered for; a new book for each picture.

    Attributes:
        planned: node name and cage of every planned cable's end; empty where nobody has said.
    """

    limits: Limits = Limits()
    planned: frozenset[tuple[str, str]] = frozenset()
    kept: Mapping[str, _Kept] = field(default_factory=dict)
    before: ClusterSnapshot | None = None

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """Severe ones first, then as they came."""
        raised = sorted((each for each in self.kept.values() if each.raised), key=lambda each: each.since)
        return tuple(each.alarm for each in sorted(raised, key=lambda each: not each.alarm.severe))

    def judged(self, snapshot: ClusterSnapshot) -> AlarmBook:
        """The book after one more picture."""
        stale = {node.node for node in snapshot.nodes if node.freshness is Freshness.STALE}
        # A node that is late says nothing new: what was true of it stays, so that nothing flaps.
        kept = {id: old for id, old in self.kept.items() if old.alarm.node in stale}
        for rule in self._rules(snapshot):
            new = _next(rule, self.kept.get(rule.alarm.id), snapshot.at)
            if new is not None:
                kept[rule.alarm.id] = new
        return AlarmBook(self.limits, self.planned, kept, snapshot)

    def _rules(self, now: ClusterSnapshot) -> Iterator[Rule]:
        for node in now.nodes:
            yield from _presence(node)
            if node.freshness is Freshness.LIVE:
                old = self.before.node(node.node) if self.before else None
                yield from _memory(node, self.limits)
                yield from _errors(node, old, self.limits)
                yield from self._links(node, old)
                yield from _gpu(node, self.limits)
        yield from _endpoint(now)
        yield _guarded(now, self.before, self.limits)

    def _links(self, node: NodeSample, old: NodeSample | None) -> Iterator[Rule]:
        """A link that was up and went, a planned one that never came, half a cable (U41: not an empty socket)."""
        by_cage: dict[str, list[PortReading]] = {}
        for port in node.ports or ():
            by_cage.setdefault(port.cage or port.device, []).append(port)
        for cage, ports in by_cage.items():
            up, down = [port for port in ports if port.active], [port for port in ports if port.active is False]
            text = f"port {cage.removeprefix('p')}"
            half = f"{text}: {down[0].device} is down while {up[0].device} is up: half speed" if up and down else ""
            yield Rule(
                Alarm(f"half.{node.node}.{cage}", node.node, False, half, "ip -br link there; bring the other half up"),
                bool(up and down),
                not (up and down),
                after_seconds=3.0,
            )
            had = any(port.active and (port.cage or port.device) == cage for port in (old.ports if old else None) or ())
            gone, name = bool(down) and not up, f"{node.node}.{cage}"
            fix = "reseat the cable at both ends; did the other Spark restart? ip -br link"
            went = Alarm(f"link.{name}", node.node, True, f"{text}: the link went down", fix)
            yield Rule(went, gone and had, bool(up))
            never = gone and not had and went.id not in self.kept and (node.node, cage) in self.planned
            what = f"{text}: no link, and the plan has a cable here"
            yield Rule(Alarm(f"nolink.{name}", node.node, False, what, fix), never, not never, after_seconds=3.0)


def _next(rule: Rule, old: _Kept | None, at: float) -> _Kept | None:
    if rule.holds:
        since = old.since if old else at
        raised = (old is not None and old.raised) or at - since >= rule.after_seconds
        return _Kept(replace(rule.alarm, since=since), since, at, raised)
    if old is None or not old.raised:
        return None
    if not rule.clear:
        return replace(old, alarm=replace(rule.alarm, since=old.since), seen_at=at)
    return old if at - old.seen_at < rule.hold_seconds else None


def _presence(node: NodeSample) -> Iterator[Rule]:
    """T5, U51, U52: a node that was short of memory and then fell silent is probably wedged, not merely away."""
    gone = node.freshness is Freshness.GONE
    memory = node.memory
    short = memory is not None and (
        (memory.available_bytes is not None and memory.available_bytes < 2 * GIB)
        or (memory.free_bytes is not None and memory.free_bytes < GIB and (node.stalled_percent or 0) > 5)
    )
    what, fix = f"no sample for {node.age_seconds or 0:.0f} s: {node.problem}", "sparktui doctor; is it on?"
    if node.age_seconds is None:
        what = node.problem
    if short and memory is not None:
        left = _gib(memory.available_bytes)
        what = f"silent for {node.age_seconds or 0:.0f} s; {left} were left when it was last seen: probably wedged"
        fix = "if ping answers and ssh does not, do not retry: cut its power, then sparktui doctor"
    clear = node.freshness is Freshness.LIVE
    yield Rule(Alarm(f"gone.{node.node}", node.node, True, what, fix), gone, clear)


def _memory(node: NodeSample, limits: Limits) -> Iterator[Rule]:
    split = node.split
    name = node.node
    head = " (the head also carries HTTP, the tokenizer and NFS)" if node.rank == 0 else ""
    for kind, value, warn, severe in (
        ("available", split.available_bytes, limits.available_warn_bytes, limits.available_severe_bytes),
        ("free", split.free_bytes, limits.free_warn_bytes, limits.free_severe_bytes),
    ):
        if value is None:
            continue
        # Free memory alone is no trouble while the kernel has much to give back: with a stall it is one.
        counts = kind == "available" or (node.stalled_percent or 0.0) > 0.0
        bad = value < severe
        what = f"{_gib(value)} {kind}: all ranks stall if this reaches 0{head}"
        fix = "end other programs there; shorter prompts; a smaller MAX_TOTAL_TOKENS or CONTEXT_LENGTH, then serve"
        yield Rule(
            Alarm(f"memory.{kind}.{name}", name, bad, what, fix),
            value < warn and counts,
            value > warn * limits.ease,
            hold_seconds=limits.hold_seconds,
        )
    stalled = node.stalled_percent
    if stalled is not None:
        what = f"everything waits for memory {stalled:.0f} % of the time (PSI full, 10 s)"
        fix = "stop what else runs there; if it goes on, sparktui stop before the node wedges"
        yield Rule(
            Alarm(f"memory.stall.{name}", name, stalled > 40, what, fix),
            stalled > limits.stalled_percent,
            stalled < limits.stalled_percent / limits.ease,
            hold_seconds=limits.hold_seconds,
        )
    if node.swapped_pages_per_second is not None:
        used = _gib(split.swap_used_bytes)
        pressure = "" if stalled is None else f", stalled {stalled:.0f} %"
        what = f"swapping: {node.swapped_pages_per_second:.0f} pages a second, {used} in use{pressure}"
        yield Rule(
            Alarm(f"swap.{name}", name, False, what, "on that node: sudo swapoff -a (owners turn swap off)"),
            node.swapped_pages_per_second > 10,
            node.swapped_pages_per_second < 1,
            hold_seconds=30.0,
        )


def _errors(node: NodeSample, old: NodeSample | None, limits: Limits) -> Iterator[Rule]:
    for port in node.ports or ():
        if not port.errors:
            continue
        was = next((each for each in (old.ports if old else None) or () if each.device == port.device), None)
        grew = was is not None and port.errors is not None and was.errors is not None and port.errors > was.errors
        names = ", ".join(port.growing)
        yield Rule(
            Alarm(
                f"errors.{node.node}.{port.device}",
                node.node,
                False,
                f"{port.device}: {port.errors} errors since the watch began ({names})",
                "reseat or swap the cable; with a switch also compare MTU and look for drops there",
            ),
            grew,
            not grew,
            hold_seconds=limits.errors_hold_seconds,
        )


def _gpu(node: NodeSample, limits: Limits) -> Iterator[Rule]:
    gpu = node.gpu
    if gpu is None:
        return
    heat = "" if gpu.temperature_celsius is None else f" at {gpu.temperature_celsius:.0f} °C"
    yield Rule(
        Alarm(
            f"gpu.throttled.{node.node}",
            node.node,
            False,
            f"the GPU is throttled for heat or power{heat}: all ranks run at its pace",
            "let air through; look at the dust and the room; sudo nvidia-smi -lgc 0,2100 makes it cooler",
        ),
        gpu.throttled is True,
        gpu.throttled is False,
        after_seconds=5.0,
        hold_seconds=30.0,
    )
    busy, watts, clock, celsius = gpu.utilization_percent, gpu.power_watts, gpu.clock_mhz, gpu.temperature_celsius
    if busy is None or watts is None or clock is None or celsius is None:
        return
    latched = busy >= 80 and clock < 1000 and watts < 25 and celsius < 60
    yield Rule(
        Alarm(
            f"gpu.latched.{node.node}",
            node.node,
            True,
            f"GPU clock latched: busy at {clock:.0f} MHz, {watts:.0f} W, {celsius:.0f} °C: all ranks run at its pace",
            "shut it down, unplug its adapter for 60 s: nothing less clears it",
        ),
        latched,
        clock > 1200,
        after_seconds=limits.latch_seconds,
    )


def _endpoint(now: ClusterSnapshot) -> Iterator[Rule]:
    """The endpoint that went away, or that answers although a rank has gone."""
    serving = now.serving
    removed = bool(now.ranks) and now.ranks[0].life is Life.ABSENT  # by somebody's wish: sparktui stop
    yield Rule(
        Alarm(
            "endpoint.down",
            now.nodes[0].node if now.nodes else "head",
            True,
            f"the endpoint answered before and does not now: {serving.problem or serving.url}",
            "sparktui status; the reason is in the log: sparktui logs head",
        ),
        serving.state is EndpointState.DOWN and serving.was_ready and not removed,
        serving.state in (EndpointState.READY, EndpointState.STARTING) or not serving.was_ready or removed,
    )
    yield from _ranks(now)


def _guarded(now: ClusterSnapshot, old: ClusterSnapshot | None, limits: Limits) -> Rule:
    """The engine on the head ended requests for want of memory: at this moment, or since the last picture."""
    serving, before = now.serving, old.serving.memory_guard_trips if old else None
    low, trips = serving.memory_guard_low is True, serving.memory_guard_trips
    tripped = before is not None and trips is not None and trips > before
    does = "and refuses new ones" if low else "and takes them again"
    return Rule(
        Alarm(
            "memory.guard",
            now.nodes[0].node if now.nodes else "head",
            True,
            f"the memory guard of the engine ended all requests {does}: the head was below DSV41_MEMGUARD_MIB",
            "end other programs there; shorter prompts; a smaller CHUNKED_PREFILL_SIZE or MAX_TOTAL_TOKENS, then serve",
        ),
        low or tripped,
        not low,
        hold_seconds=limits.guard_hold_seconds,
    )


def _ranks(now: ClusterSnapshot) -> Iterator[Rule]:
    """T5, U75: it answers, and not all ranks are there. Nothing of the endpoint's own tells for minutes."""
    serving, silent = now.serving, {node.node for node in now.nodes if node.freshness is Freshness.GONE}
    answered = serving.state is EndpointState.READY or serving.was_ready
    # What serves is ours only when one of our engines runs or has run: an old container may lie beside another program.
    ours = any(each.life is Life.RUNS or each.has_run for each in now.ranks)
    ended = [each for each in now.ranks if each.life is Life.ENDED] if ours else []
    absent = [each for each in now.ranks if each.life is Life.ABSENT] if ours else []
    nodes = sorted(silent - {each.node for each in ended})
    gone = [f"rank {each.rank} is gone: its engine on {each.node} {how_it_ended(each)}" for each in ended]
    gone += [f"{node} is gone" for node in nodes]
    first = ended[0].node if ended else nodes[0] if nodes else ""
    fix = f"sparktui logs {first}; then sparktui stop and sparktui serve"
    what = f"{'; '.join(gone)}; the endpoint still answers, requests now hang"
    if serving.state is EndpointState.DOWN:
        what = "; ".join(gone)
    yield Rule(
        Alarm(RANKS, first, True, what, fix),
        answered and bool(gone) and (bool(ended) or serving.state is not EndpointState.DOWN),
        not gone or (not ended and serving.state is EndpointState.DOWN),
    )
    # While sparktui stop goes on, containers go one after the other.
    names = ", ".join(f"rank {each.rank} ({each.node})" for each in absent)
    yield Rule(
        Alarm(
            NO_CONTAINER,
            absent[0].node if absent else "",
            True,
            f"{names}: no engine container, although the endpoint answers: requests hang",
            "sparktui stop and sparktui serve",
        ),
        serving.state is EndpointState.READY and bool(absent),
        not absent or serving.state is EndpointState.DOWN,
        after_seconds=ABSENT_SECONDS,
    )
    unseen = [each for each in now.ranks if each.life is Life.UNKNOWN and each.problem and each.node not in silent]
    names = ", ".join(f"rank {each.rank} ({each.node})" for each in unseen)
    yield Rule(
        Alarm(
            UNSEEN,
            unseen[0].node if unseen else "",
            False,
            f"{names}: not known whether it runs: {unseen[0].problem if unseen else ''}",
            "the endpoint may answer without it; sparktui doctor",
        ),
        serving.state is EndpointState.READY and bool(unseen),
        not unseen or serving.state is not EndpointState.READY,
        after_seconds=UNSEEN_SECONDS,
    )


def how_it_ended(rank: RankLife) -> str:
    """`ended, exit status 137`, `ran out of memory`."""
    if rank.oom_killed:
        return "ran out of memory"
    return "ended" if rank.exit_code is None else f"ended, exit status {rank.exit_code}"


def overruled(serving: Serving, alarms: Iterable[Alarm]) -> Serving:
    """What an endpoint says of itself, corrected by what the ranks' nodes say."""
    if serving.state not in (EndpointState.READY, EndpointState.UNKNOWN):
        return serving
    for alarm in alarms:
        if alarm.id in (RANKS, NO_CONTAINER):
            return replace(serving, state=EndpointState.HANGS, problem=alarm.what)
        if alarm.id == UNSEEN and serving.state is EndpointState.READY:
            return replace(serving, rank_unknown=True, problem=alarm.what)
    return serving


def _gib(value: int | None) -> str:
    return "unknown" if value is None else f"{value / GIB:.1f} GiB"
