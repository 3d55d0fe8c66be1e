"""How to reach the endpoint, line by line to copy; the key is masked and never copied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.events import Click
from textual.screen import ModalScreen
from textual.widgets import Static

from sparktui.steps.step import Inspection
from sparktui.steps.talk import VARIES
from sparktui.telemetry.sample import EndpointState
from sparktui.ui.messages import Copied
from sparktui.ui.wrapping import hanging

if TYPE_CHECKING:
    from sparktui.ui.app import SparkApp

CARD_COLUMNS = 72
"""Inside the card, until its size is known."""
LOCAL = ("127.0.0.1", "localhost", "::1")


class TalkCard(ModalScreen[None]):
    """Args:
    lines: `name: value` each, the last one the curl line.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,t,enter", "dismiss", "close", id="talk.close", tooltip="Close the card"),
        Binding("y,c", "copy", "copy", id="talk.copy", tooltip="Copy the line that is pointed at"),
        Binding("up,k,shift+tab", "point(-1)", "up", show=False, id="talk.up", tooltip="The line above or below"),
        Binding("down,j,tab", "point(1)", "down", show=False, id="talk.down", tooltip="The line above or below"),
        Binding("pageup", "scroll(-1)", "page up", show=False, id="talk.page-up", tooltip="A page up or down"),
        Binding(
            "pagedown,space", "scroll(1)", "page down", show=False, id="talk.page-down", tooltip="A page up or down"
        ),
    ]

    app: SparkApp

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = tuple(lines)
        self.pointed = max(0, len(self.lines) - 1)
        super().__init__()

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="card", id="talk-card", can_focus=False):
            yield Static(self._title(), id="talk-title", markup=False)
            for number, _ in enumerate(self.lines):
                yield Static("", id=f"talk-{number}", classes="talk-line", markup=False)
            yield Static(self._below(), id="talk-below", markup=False)

    def on_mount(self) -> None:
        for name in ("snapshot", "inspections"):
            self.watch(self.app, name, self._show_title, init=False)
        self._show_lines()

    def _show_title(self) -> None:
        self.query_one("#talk-title", Static).update(self._title())

    def _title(self) -> Content:
        title = Content.assemble(("Talk to it", "bold"), "  ", self._standing())
        banner = self.app.session.start.banner
        if not banner:
            return title
        return Content.assemble((f"{banner}: ", "$simulated bold"), "a simulated model answers here\n", title)

    def _standing(self) -> Content:
        state = self.app.snapshot.serving.state
        serve = self.app.inspections.get("serve")
        if state is EndpointState.READY or (
            state is EndpointState.UNKNOWN and isinstance(serve, Inspection) and serve.done
        ):
            return Content.styled(f"{self.app.glyphs.done} the endpoint is ready", "$success")
        if state is EndpointState.HANGS:
            text = f"{self.app.glyphs.failed} a rank is gone: requests hang; sparktui stop, then serve"
            return Content.styled(text, "$error")
        if state is EndpointState.STARTING:
            return Content.styled(f"{self.app.glyphs.running} the endpoint is starting", "$warning")
        if state is EndpointState.DOWN or isinstance(serve, Inspection):
            return Content.styled(f"{self.app.glyphs.blocked} nothing answers yet: serve comes first", "$warning")
        return Content.styled("whether it answers is not known yet", "$quiet")

    def on_resize(self) -> None:
        self.call_after_refresh(self._show_lines)

    def _show_lines(self) -> None:
        for number, line in enumerate(self.lines):
            widget = self.query_one(f"#talk-{number}", Static)
            here = number == self.pointed
            mark = Content.styled(f"{self.app.glyphs.pointer} " if here else "  ", "$accent bold")
            name, separator, value = line.partition(": ")
            if is_command(line) or not separator:
                room = widget.container_size.width or CARD_COLUMNS
                content = Content("\n").join(hanging(line, room, first=mark, indent=2))
            else:
                content = Content.assemble(mark, (f"{name}: ", "$quiet"), (value, "bold" if here else ""))
            widget.update(content)

    def _below(self) -> Content:
        lines = [Content.styled(VARIES, "$quiet")]
        settings = self.app.session.settings
        if settings is not None and settings.api_key is None and settings.host not in LOCAL:
            lines.append(
                Content.styled(
                    f"{self.app.glyphs.warn} there is no API_KEY: everybody on this network can use it", "$warning"
                )
            )
        lines.append(Content.styled("Always send max_tokens: a reply without it may run long.", "$quiet"))
        lines.append(Content.styled("up down: point   y: copy   esc: close", "$quiet"))
        return Content("\n").join(lines)

    def action_point(self, by: int) -> None:
        self.pointed = max(0, min(len(self.lines) - 1, self.pointed + by))
        self._show_lines()
        self.query_one(f"#talk-{self.pointed}").scroll_visible(animate=False)

    def on_click(self, event: Click) -> None:
        name = event.widget.id if event.widget is not None else None
        if name and name.removeprefix("talk-").isdecimal():
            self.pointed = int(name.removeprefix("talk-"))
            self._show_lines()

    def action_scroll(self, direction: int) -> None:
        self.query_one("#talk-card").scroll_relative(y=direction * 5, animate=False, immediate=True)

    def action_copy(self) -> None:
        what, text = copied_of(self.lines[self.pointed])
        self.app.post_message(Copied(text, what))


def is_command(line: str) -> bool:
    return line.startswith("curl ")


def copied_of(line: str) -> tuple[str, str]:
    """(what it is, text for the clipboard): the curl line whole, of the others the value.

    Of the key only the name of its file: what is on the screen is masked, and a copy of the key itself would end up
    in the clipboard's history.
    """
    if is_command(line):
        return "curl line", line
    name, separator, value = line.partition(": ")
    if not separator:
        return "line", line
    if name == "API key":
        _, found, rest = value.partition(" (in ")
        return ("name of the key's file", rest.removesuffix(")")) if found else ("API key", value)
    return name, value
