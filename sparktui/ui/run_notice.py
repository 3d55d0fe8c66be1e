"""Looks now and then for a run that somebody else began, and says when the state folder does not answer."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from sparktui.errors import DeadlineExceeded

if TYPE_CHECKING:
    from sparktui.ui.app import SparkApp

SILENCE_TOLD_SECONDS = 20.0


class RunNotice:
    def __init__(self, app: SparkApp) -> None:
        self._app = app
        self._looking = False
        self._told_at: float | None = None

    def tick(self) -> None:
        """A run of another terminal, or of a command, is shown here as well."""
        app = self._app
        if app.session.settings is None:
            return
        self._tell_silence()
        if not (self._looking or app.starting or app.run_view.active):
            self._looking = True
            app.run_worker(self._look(), group="notice", exit_on_error=False)

    async def _look(self) -> None:
        app, run_dir = self._app, None
        try:
            with contextlib.suppress(DeadlineExceeded):  # said by `_tell_silence`
                run_dir = await app.session.holding()
        finally:
            self._looking = False
        if run_dir is not None and run_dir != app.run_dir and not (app.starting or app.run_view.active):
            app.follow(run_dir)

    def _tell_silence(self) -> None:
        """Again and again until the folder answers; then everything is read anew."""
        app, now = self._app, self._app.monotonic()
        silence = app.session.silence()
        if silence and (self._told_at is None or now >= self._told_at + SILENCE_TOLD_SECONDS):
            self._told_at = now
            app.notify(silence, severity="warning", timeout=SILENCE_TOLD_SECONDS, markup=False)
        elif not silence and self._told_at is not None:
            self._told_at = None
            app.notify("the state folder answers again", markup=False)
            if not (app.starting or app.run_view.active):
                app.begin()
