"""Facts that go up. Widgets and workers post them; a screen or the app answers."""

from __future__ import annotations

from textual.message import Message

from sparktui.runs.view import RunView
from sparktui.telemetry.sample import ClusterSnapshot


class SnapshotArrived(Message):
    """A newer picture of the cluster; an unread older one may be dropped."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self.snapshot = snapshot
        super().__init__()

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, SnapshotArrived)


class RunChanged(Message):
    """The followed run went on; an unread older view may be dropped."""

    def __init__(self, view: RunView) -> None:
        self.view = view
        super().__init__()

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, RunChanged)


class Copied(Message):
    """Somebody wants this text in the clipboard. `what` names it in a word or two."""

    def __init__(self, text: str, what: str) -> None:
        self.text = text
        self.what = what
        super().__init__()


class StepRequested(Message):
    """Run these verbs now."""

    def __init__(self, verbs: tuple[str, ...], *, forced: tuple[str, ...] = ()) -> None:
        self.verbs = verbs
        self.forced = forced
        super().__init__()
