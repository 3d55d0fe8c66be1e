"""The command line: every verb, for people, scripts and coding agents."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparktui import __version__
from sparktui.errors import SparktuiError, UsageError
from sparktui.verbs import ABSENT, PRESENT, PROFILE_NAMES

if TYPE_CHECKING:
    from pathlib import Path

    from sparktui.runs.parts import Parts

_HELP = """\
verbs:
  (none)     the full-screen app: a wizard through all of this, then a monitor
  up         doctor, download, build, share, pack, serve, smoke: skips what is done, stops at the first failure
  doctor     check every node; changes nothing
  plan       the memory sheet of the profile; changes nothing
  download build share pack serve smoke     one step of the chain
  status     what runs where, and whether it answers
  talk       how to reach the endpoint: curl line, base URLs, model
  logs [NODE] [N] [-f]                      the engine's output of one node, or of all
  monitor [--once]                          all nodes live; --once prints one picture of them
  demo [VERB]                               the app, or any verb, on a simulated cluster: sparktui demo --help
  stop       cancel the run that is going on, then stop the engine on all nodes

A verb that changes something runs in a process of its own. Closing the terminal, a lost ssh or a killed viewer
never stops it; the same verb again re-attaches. Ctrl-C cancels the run cleanly (status 130); a second Ctrl-C leaves
it going in the background, and `sparktui stop` ends it later.

exit status: 0 done, 1 a check failed or a step did not finish, 2 settings or usage, 3 a node could not be reached,
130 interrupted
"""


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sparktui",
        usage="sparktui [VERB] [--env-file F] [--profile P] [--json] [--dry-run] [--yes] [--node NAME]",
        description="Serve DeepSeek-V4.1-Flash-1017 on three or four DGX Sparks.",
        epilog=_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("verb", nargs="?", metavar="VERB", help=argparse.SUPPRESS)
    parser.add_argument("log_node", nargs="?", metavar="NODE", help=argparse.SUPPRESS)
    parser.add_argument("log_lines", nargs="?", type=_line_count, metavar="N", help=argparse.SUPPRESS)
    parser.add_argument("--env-file", metavar="F", help="settings (default: .env, or that of the profile)")
    parser.add_argument("--profile", choices=PROFILE_NAMES, help="three (.env), four or four-ring (.env.tp4)")
    parser.add_argument("--json", action="store_true", help="print the journal's events, one object a line")
    parser.add_argument("--dry-run", action="store_true", help="print exactly what would run, and do nothing")
    parser.add_argument("--yes", action="store_true", help="answer questions with yes")
    parser.add_argument("--node", metavar="NAME", help="only this node (head, worker1, …)")
    parser.add_argument("-n", dest="lines", type=_line_count, metavar="N", help="logs: the last N lines (100)")
    parser.add_argument("-f", dest="follow", action="store_true", help="logs: go on with what comes")
    parser.add_argument("--once", action="store_true", help="monitor: print one picture, after two samples")
    parser.add_argument("--ascii", action="store_true", help="the app: draw with ASCII characters only")
    parser.add_argument("--no-mouse", action="store_true", help="the app: leave the mouse to the terminal")
    parser.add_argument("--version", action="version", version=f"sparktui {__version__}")
    return parser


def _line_count(text: str) -> int:
    value = int(text)
    if not 0 <= value <= 1_000_000:
        raise argparse.ArgumentTypeError("0 to 1000000")
    return value


def main(argv: Sequence[str] | None = None, given: Parts | None = None, program: Sequence[str] | None = None) -> int:
    """Run one verb; its exit status. `given` and `program` replace settings, links, steps and the run's process."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for stream in (sys.stdout, sys.stderr):
        # An ASCII terminal shows a replacement, not a traceback.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        _secure_process()
        if words[:1] == ["demo"] and given is None:
            return _demo(words[1:])
        return _verb(build_parser().parse_intermixed_args(words), given, program)
    except SparktuiError as error:
        return _say_error(error, as_json="--json" in words)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader (`| head`) has gone; the run has not.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        from sparktui.local_fault import local_fault

        known = local_fault(error) if isinstance(error, OSError | MemoryError) else None
        return _say_error(known or _unexpected(error), as_json="--json" in words)


def _secure_process() -> None:
    """Files are never writable to others, whatever the shell's umask; a closed stream does not become a file."""
    given = os.umask(0o077)
    os.umask((given | 0o022) & 0o077)
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stdin is None:
        sys.stdin = os.fdopen(0)
    if sys.stdout is None:
        raise UsageError("standard output is closed", fix="give it a file, or /dev/null")


def _unexpected(error: Exception) -> SparktuiError:
    """A mistake of ours: a sentence, and the traceback in a file (0600) instead of on the screen."""
    import tempfile
    import traceback

    try:
        with tempfile.NamedTemporaryFile("w", prefix="sparktui-traceback-", suffix=".txt", delete=False) as file:
            file.write("".join(traceback.format_exception(error)))
        fix = f"see {file.name}"
    except OSError as refused:
        fix = f"its details could not be kept: {refused.strerror or refused}"
    return SparktuiError(f"an error that sparktui does not know ({type(error).__name__})", fix=fix)


def _verb(options: argparse.Namespace, given: Parts | None, program: Sequence[str] | None) -> int:
    _check_usage(options)
    if _opens_app(options):
        from sparktui.runs.parts import product
        from sparktui.verbs import app_env_file

        return _open_app(options, given or product(), app_env_file(options.env_file, options.profile), program=program)
    from sparktui.command import Command

    return Command(options, given, program).run()


def _opens_app(options: argparse.Namespace) -> bool:
    return options.verb is None or (options.verb == "monitor" and not options.once)


def _open_app(
    options: argparse.Namespace, parts: Parts, env_file: Path, *, program: Sequence[str] | None, banner: str = ""
) -> int:
    from sparktui.ui.opening import open_app
    from sparktui.ui.session import Start

    mode = "monitor" if options.verb == "monitor" else "wizard"
    start = Start(parts, env_file, options.profile, program, banner, mode)
    return open_app(start, ascii_only=options.ascii, mouse=not options.no_mouse)


def _demo(words: list[str]) -> int:
    """A verb, or the app, on a cluster that is simulated below the links; everything printed says so."""
    from sparktui.demo.entry import prepare
    from sparktui.demo.parts import PROGRAM, demo_parts
    from sparktui.demo.shown import marked

    as_json = "--json" in words
    try:
        prepared = prepare(words)
        if prepared.argv is not None:
            options = build_parser().parse_intermixed_args(prepared.argv)
            options.ascii = options.ascii or "--ascii" in words
            if _opens_app(options):
                _check_usage(options)
                env_file = prepared.home.env_file
                return _open_app(options, demo_parts(), env_file, program=PROGRAM, banner="SIMULATED")
    except SparktuiError as error:
        return _say_error(error, as_json=as_json)
    with marked(as_json=as_json):
        if prepared.argv is None:
            print("\n".join(prepared.said))
            return 0
        return main(prepared.argv, demo_parts(), PROGRAM)


def _check_usage(options: argparse.Namespace) -> None:
    verb = options.verb
    if _opens_app(options):
        _check_app_usage(options)
        return
    if verb in ABSENT:
        raise UsageError(f"the verb `{verb}` is not in this version", fix=ABSENT[verb])
    if verb not in PRESENT:
        from difflib import get_close_matches

        near = get_close_matches(verb, PRESENT, n=1, cutoff=0.5)
        fix = f"did you mean: sparktui {near[0]}" if near else f"verbs: {', '.join(PRESENT)}"
        raise UsageError(f"there is no verb `{verb}`", fix=fix)
    if options.log_node is not None and verb != "logs":
        raise UsageError(f"`{verb}` takes no {options.log_node!r}", fix=f"for one node: --node {options.log_node}")
    if options.log_lines is not None:
        if options.lines is not None:
            fix = f"leave one out: sparktui logs -n {options.lines}"
            raise UsageError("the number of lines is given twice", fix=fix)
        options.lines = options.log_lines
    if verb != "logs" and (options.follow or options.lines is not None):
        raise UsageError("-f and -n belong to `logs`")
    if options.ascii or options.no_mouse:
        raise UsageError("--ascii and --no-mouse belong to the full-screen app", fix="leave the verb out: sparktui")
    if options.once and verb != "monitor":
        raise UsageError("--once belongs to `monitor`")
    if options.dry_run and verb in ("logs", "plan", "status", "talk", "monitor"):
        raise UsageError(f"`{verb}` changes nothing: --dry-run has no meaning there")


def _check_app_usage(options: argparse.Namespace) -> None:
    """What belongs to a verb has no meaning for the app."""
    for name in ("json", "dry_run", "yes", "node", "log_node", "log_lines", "lines", "follow", "once"):
        if getattr(options, name) not in (None, False):
            word = f"--{name.replace('_', '-')}" if name in ("json", "dry_run", "yes", "node", "once") else "-n or -f"
            word = repr(options.log_node) if name == "log_node" else word
            fix = "sparktui monitor --once" if options.verb == "monitor" else "name a verb, see: sparktui --help"
            raise UsageError(f"the full-screen app takes no {word}", fix=fix)


def _say_error(error: SparktuiError, *, as_json: bool) -> int:
    if as_json:
        from sparktui.events import RunFinished
        from sparktui.runs.journal import dumps_ascii, envelope

        finished = RunFinished(error.exit_status, error.what, error.fix, error.node or "")
        print(dumps_ascii(envelope(finished, 1, str)))
    else:
        print("\n".join(error.lines()), file=sys.stderr)
    return error.exit_status


if __name__ == "__main__":
    sys.exit(main())
