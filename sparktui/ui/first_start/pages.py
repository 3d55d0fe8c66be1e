"""The groups of questions. Each shows a frozen view of what is known; what a person does goes up as messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from sparktui.cluster.plan import MemoryPlan
from sparktui.cluster.profile import PROFILES
from sparktui.cluster.published import published_with
from sparktui.envfile import Severity
from sparktui.events import State
from sparktui.steps.discovery import Found
from sparktui.ui.first_start.comparison import ABOUT_SHEET, WHY_FOUR, WHY_THREE, comparison
from sparktui.ui.first_start.draft import Draft, KeyChoice
from sparktui.ui.first_start.env_text import Made, owner_of
from sparktui.ui.first_start.fields import Choice, ChoiceList, Field
from sparktui.ui.first_start.key_test import KeyRow
from sparktui.ui.first_start.preview import file_view, problem_lines
from sparktui.ui.first_start.proposals import Proposal
from sparktui.ui.glyphs import UNICODE, Glyphs
from sparktui.ui.wrapping import hanging

NOTHING = Proposal("", "")


@dataclass(frozen=True, slots=True)
class View:
    """All that a group may show.

    Attributes:
        found: None while this machine is being looked at.
        made: the file that would be saved; None until it was first checked.
        random_key: the key that is offered; shown on its group only.
        typed_secrets: what was typed for API_KEY and HF_TOKEN.
        gone: the sentence about secrets of an earlier start, empty where there were none.
    """

    draft: Draft
    proposed: Mapping[str, Proposal] = field(default_factory=dict)
    found: Found | None = None
    rows: tuple[KeyRow, ...] = ()
    made: Made | None = None
    sheets: Mapping[str, MemoryPlan] | None = None
    random_key: str = ""
    typed_secrets: Mapping[str, str] = field(default_factory=dict)
    gone: str = ""
    target: str = ""
    glyphs: Glyphs = UNICODE
    width: int = 80


class Page(Vertical):
    """One group."""

    key: ClassVar[str] = ""
    title: ClassVar[str] = ""

    def __init__(self) -> None:
        super().__init__(id=f"page-{self.key}", classes="page")

    def show(self, view: View) -> None:
        """Show what is known; called whenever it changed."""
        for each in self.query(Field):
            made = view.made
            problem = made.problem_of(each.setting) if made is not None else None
            wrong = (
                made is not None
                and problem is not None
                and problem.severity is Severity.ERROR
                and owner_of(problem, made.changes) == self.key
                and self.says(each, view)
            )
            answer = view.draft.answers.get(each.setting)
            proposal = view.proposed.get(each.setting, NOTHING)
            each.show(proposal, answer, problem.reason if problem and wrong else "", view.glyphs)

    def says(self, field: Field, view: View) -> bool:
        """Whether a field's problem is said now: not before anything stands there."""
        return bool(field.value)

    def stops(self) -> list[Widget]:
        """Where the keyboard stops, in order."""
        return [each for each in self.query("Field, ChoiceList, .stop") if each.display]


class ProfilePage(Page):
    key = "profile"
    title = "profile"

    def compose(self) -> ComposeResult:
        yield Static(Content.assemble(("How many Sparks, and how are they cabled?", "bold")), markup=False)
        yield ChoiceList(
            [
                Choice("three", "three", "three cables, each Spark to each"),
                Choice("four", "four", "one cable each, to a RoCE switch"),
                Choice("four-ring", "four-ring", "four cables in a ring, a patched NCCL on every Spark"),
            ],
            id="choose-profile",
        )
        yield Static(markup=False, id="profile-table")
        yield Static(markup=False, id="profile-why")

    def show(self, view: View) -> None:
        self.query_one(ChoiceList).choose(view.draft.profile)
        chosen_four = view.draft.profile != "three"
        lines = [
            Content.assemble(
                (f"{'published (our sheet)':22}", "$quiet"),
                (f"{'three Sparks':27}", "" if chosen_four else "$accent bold"),
                (f"{'four Sparks':27}", "$accent bold" if chosen_four else ""),
            )
        ]
        for row in comparison(view.sheets):
            three, four = _cell(row.three, row.sheet_three), _cell(row.four, row.sheet_four)
            lines.append(Content.assemble((f"{row.what:22}", "$quiet"), f"{three:27}", f"{four:27}".rstrip()))
        self.query_one("#profile-table", Static).update(Content("\n").join(lines))
        why = WHY_FOUR if chosen_four else WHY_THREE
        speeds = f"Speeds: {published_with(4 if chosen_four else 3)}."
        text = Content.assemble((f"{why} {ABOUT_SHEET} {speeds}", "$quiet"))
        self.query_one("#profile-why", Static).update(text)


def _cell(published: str, sheet: str) -> str:
    return f"{published} ({sheet})" if sheet else published


class SparksPage(Page):
    key = "sparks"
    title = "Sparks"

    def compose(self) -> ComposeResult:
        yield Static(Content.assemble(("Which machine is the head, which are the workers?", "bold")), markup=False)
        yield Field("HEAD_IP", "head's address")
        yield Field("WORKER_HOSTS", "workers", is_list=True)
        yield Static(markup=False, id="sparks-found", classes="quiet")

    def show(self, view: View) -> None:
        super().show(view)
        found = view.found
        if found is None:
            text = "looking at this machine: addresses, cables, your ssh config, known_hosts, neighbours"
        else:
            lines = ["The head is this machine. The workers' order is the rank; user@host where one has its own user."]
            lines += ["A list can be pasted: lines, blanks or commas."]
            if found.candidates:
                lines += ["", "Found:"]
                lines += [
                    f"  {each.host:16} {each.address or 'address unknown':15} {each.source}"
                    for each in found.candidates[:8]
                ]
            text = "\n".join(lines)
        self.query_one("#sparks-found", Static).update(Content(text))


class SshPage(Page):
    key = "ssh"
    title = "ssh"

    def compose(self) -> ComposeResult:
        yield Static(Content.assemble(("Can the head log in to each worker?", "bold")), markup=False)
        yield Field("WORKER_USER", "workers' user")
        yield Field("SSH_IDENTITY", "private key")
        yield Static(markup=False, id="ssh-rows")

    def show(self, view: View) -> None:
        super().show(view)
        glyphs = view.glyphs
        lines: list[Content] = []
        for row in view.rows:
            glyph, style = _look(row, glyphs)
            lines.append(
                Content.assemble(
                    (f"{glyph} ", style), (f"{row.name:8}", "bold"), f" {row.target}: ", (row.word, f"{style} bold")
                )
            )
            room = view.width - 4
            if row.text:
                lines += hanging(row.text, room, indent=4)
            if row.fix:
                lines += hanging(row.fix, room, first=Content.styled("    next: ", "$quiet"), indent=10)
        if not view.rows:
            lines = [Content.styled("each node is tried when there are workers", "$quiet")]
        self.query_one("#ssh-rows", Static).update(Content("\n").join(lines))


def _look(row: KeyRow, glyphs: Glyphs) -> tuple[str, str]:
    if row.state is None:
        return glyphs.running, "$quiet"
    style = {State.OK: "$success", State.WARN: "$warning", State.FAIL: "$error"}.get(row.state, "$quiet")
    return glyphs.of_finding(row.state), style


class NetworkPage(Page):
    key = "network"
    title = "network"

    def compose(self) -> ComposeResult:
        yield Static(Content.assemble(("Addresses, cables and RDMA devices", "bold")), markup=False)
        yield Field("WORKER_IPS", "workers' addresses", is_list=True)
        yield Field("NCCL_SOCKET_IFNAME", "first contact over")
        yield Field("FABRIC_IFACE", "ConnectX interface")
        yield Field("NCCL_IB_HCA", "RDMA devices", is_list=True)
        yield Field("WORKER_FABRIC_IPS", "workers on cables", is_list=True)
        yield Field("NFS_SERVER_IPS", "head on cables", is_list=True)
        yield Field("NCCL_HOST_DIR", "patched NCCL in")

    def show(self, view: View) -> None:
        self.query_one("#field-nccl-host-dir").display = view.draft.profile == "four-ring"
        super().show(view)

    def says(self, field: Field, view: View) -> bool:
        return True


class WatchPage(Page):
    key = "watch"
    title = "watch"

    def compose(self) -> ComposeResult:
        yield Static(Content.assemble(("Is somebody there while it serves?", "bold")), markup=False)
        yield ChoiceList(
            [
                Choice("attended", "attended", "somebody looks at it"),
                Choice("unattended", "unattended", "nobody looks"),
            ],
            id="choose-watch",
        )
        yield Static(markup=False, id="watch-why")

    def show(self, view: View) -> None:
        self.query_one(ChoiceList).choose("unattended" if view.draft.unattended else "attended")
        limit = PROFILES[view.draft.profile].unattended_context_tokens
        if limit is None:
            text = "Four Sparks have memory left for long prompts: the window stays 1,048,576 tokens either way."
        else:
            text = (
                f"Unattended sets the window of a request to {limit:,} tokens. The head's memory is what limits long "
                "prompts on three Sparks, and a head that runs out of it stalls all ranks until somebody comes. "
                "Attended keeps 262,144: prompts up to 208,000 tokens were tried, about 32,000 can be relied on. "
                "CONTEXT_LENGTH holds it; the settings (key e) change it later."
            )
        self.query_one("#watch-why", Static).update(Content(text))


class KeysPage(Page):
    key = "keys"
    title = "keys"

    def compose(self) -> ComposeResult:
        yield Static(Content.assemble(("Must clients send a key?", "bold")), markup=False)
        yield ChoiceList(
            [
                Choice(KeyChoice.RANDOM, "a random one", "made here, shown below this once"),
                Choice(KeyChoice.OWN, "my own", "typed below"),
                Choice(KeyChoice.NONE, "none", "everybody who reaches the port may use it"),
            ],
            id="choose-key",
        )
        yield Static(markup=False, id="keys-gone")
        yield Static(markup=False, id="random-key")
        yield Field("API_KEY", "your key", password=True)
        yield Field("HF_TOKEN", "Hugging Face token", password=True)
        yield Static(
            Content(
                "Both go into the env file, which only you can read (0600), and into no log and no command line. "
                "What is typed here is not in the draft that is kept until you save."
            ),
            markup=False,
            classes="quiet",
            id="keys-where",
        )

    def show(self, view: View) -> None:
        self.query_one(ChoiceList).choose(view.draft.key)
        gone = self.query_one("#keys-gone", Static)
        gone.update(Content.styled(view.gone, "$warning"))
        gone.display = bool(view.gone)
        shown = view.draft.key is KeyChoice.RANDOM and bool(view.random_key)
        self.query_one("#random-key", Static).update(
            Content.assemble("API_KEY  ", (view.random_key, "$accent bold"), ("  copy it now: ctrl+y", "$quiet"))
            if shown
            else Content("")
        )
        self.query_one("#field-api-key").display = view.draft.key is KeyChoice.OWN
        notes = {
            "API_KEY": Proposal("", "a word without blanks; clients send it as a bearer token"),
            "HF_TOKEN": Proposal("", "optional; empty: the environment's HF_TOKEN, or none for a public checkpoint"),
        }
        for each in self.query(Field):
            problem = view.made.problem_of(each.setting) if view.made is not None else None
            wrong = problem.reason if problem and problem.severity is Severity.ERROR and each.value else ""
            each.show(notes[each.setting], view.typed_secrets.get(each.setting), wrong, view.glyphs)


class SaveScroll(VerticalScroll, can_focus=True):
    """The file's text; `marks` are the rows that differ from the example."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "enter",
            "save",
            "save",
            key_display="enter",
            id="first.save",
            tooltip="Save, or go to what is wrong",
        ),
        Binding("n", "mark(1)", "next change", id="first.mark", tooltip="The next line that differs from the example"),
        Binding("N", "mark(-1)", "change before", show=False, id="first.mark_back", tooltip="The one before"),
    ]
    marks: tuple[int, ...] = ()

    class Wanted(Message):
        """Save it."""

    def action_save(self) -> None:
        self.post_message(self.Wanted())

    def action_mark(self, step: int) -> None:
        here = self.scroll_offset.y
        if step > 0:
            wanted = next((mark for mark in self.marks if mark - 2 > here), None)
        else:
            wanted = next((mark for mark in reversed(self.marks) if mark - 2 < here), None)
        if wanted is not None:
            self.scroll_to(y=max(0, wanted - 2), animate=False)


class SavePage(Page):
    key = "save"
    title = "save"
    _shown: tuple[Made, int] | None = None

    def compose(self) -> ComposeResult:
        yield Static(markup=False, id="save-summary")
        with SaveScroll(classes="stop", id="save-text"):
            yield Static(markup=False, id="save-lines")

    def show(self, view: View) -> None:
        made = view.made
        if made is None:
            self.query_one("#save-summary", Static).update(Content("checking"))
            return
        room = view.width - 3
        errors = [each for each in made.problems if each.severity is Severity.ERROR]
        lines: list[Content] = []
        if errors:
            count = f"{len(errors)} thing{'s' if len(errors) > 1 else ''} to put right. "
            lines.append(Content.assemble(("Not yet: ", "$error bold"), (count, "bold"), "Enter goes to the first."))
            for each in errors[:3]:
                lines += problem_lines(each, owner_of(each, made.changes), view.glyphs, room)
        else:
            lead = Content.assemble(("Enter saves ", "$success bold"), (view.target, "bold"))
            lines.append(lead.truncate(room, ellipsis=True))
            changed = len(made.changes)
            lines.append(
                Content.styled(f"Only you can read it. {changed} lines differ from the example: marked.", "$quiet")
            )
        self.query_one("#save-summary", Static).update(Content("\n").join(lines))
        if self._shown == (made, room):
            return  # four hundred lines are drawn once
        self._shown = (made, room)
        text, marks = file_view(made, view.glyphs, room)
        self.query_one("#save-lines", Static).update(text)
        self.query_one(SaveScroll).marks = marks


PAGE_CLASSES: tuple[type[Page], ...] = (ProfilePage, SparksPage, SshPage, NetworkPage, WatchPage, KeysPage, SavePage)
