"""The part of the app that says how far each rank's boot is, and whether its engine still runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import work
from textual.app import App
from textual.reactive import var

from sparktui.runs.view import RunView
from sparktui.telemetry.sample import ClusterSnapshot, EndpointState, Life

if TYPE_CHECKING:
    from sparktui.engine.ladder import RankBoot
    from sparktui.telemetry.serving import Endpoint
    from sparktui.ui.session import Session


class BootWatching(App[int]):
    """Attributes:
    run_view: the run that is followed, or the last one.
    snapshot: the newest picture of the nodes.
    boots: each rank's ladder as it is read, or what is known of its container; empty before anybody has looked.
    """

    run_view: var[RunView] = var(RunView(), init=False)
    snapshot: var[ClusterSnapshot] = var(ClusterSnapshot(), init=False)
    boots: var[tuple[RankBoot, ...]] = var((), init=False)

    session: Session
    endpoint: Endpoint | None = None
    _watching_boots = False

    def watch_boots_where_wanted(self) -> None:
        """While something boots or has died; a ladder needs the logs and Docker's SDK, which a calm monitor spares."""
        serves = self.run_view.active and self.run_view.current == "serve"
        died = any(each.life is Life.ENDED and each.has_run for each in self.snapshot.ranks)
        told = self.snapshot.serving.state in (EndpointState.STARTING, EndpointState.HANGS)
        wanted = serves or died or told
        if wanted and not self._watching_boots and self.session.settings is not None:
            self._watching_boots = True
            self.watch_ladders()
        elif not wanted and self._watching_boots:
            self._watching_boots = False
            self.workers.cancel_group(self, "boots")
        if not self._watching_boots and self.snapshot.ranks:
            from sparktui.telemetry.boots import with_lives

            self.boots = with_lives(self.boots, self.snapshot.ranks)

    @work(group="boots", exclusive=True, exit_on_error=False)
    async def watch_ladders(self) -> None:
        """Every rank's ladder; the last rungs stay when nobody watches any more."""
        from sparktui.telemetry.boots import BootWatch, warming_up

        watch = BootWatch(await self.session.links())
        endpoint = self.endpoint
        try:
            async for boots in watch.boots():
                self.boots = boots
                if endpoint is not None:
                    endpoint.engine_running, endpoint.warming_up = watch.running(0), warming_up(boots)
        finally:
            if endpoint is not None:
                endpoint.engine_running, endpoint.warming_up = None, False
