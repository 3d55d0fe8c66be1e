"""Writes a package named `sglang` that answers HTTP like the engine, so that the entry point runs in seconds.

Only what `spark_overlay.engine_process` imports exists. Its behaviour is set by STAND_IN (comma-separated words):
`never-healthy`, `exit-7`, `stubborn` (ignores SIGTERM), `garbage` (answers Chinese), `orphan` (leaves a grandchild),
`worker` and `daemon` (have a child that outlives them, in their group or as a daemon in a session of its own, and write
its process id to STATE_PATH/worker).
"""

from __future__ import annotations

from pathlib import Path

_LAUNCH = """
import json, logging, os, signal, subprocess, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
WORDS = os.environ.get("STAND_IN", "").split(",")
def run_server(arguments):
    logging.warning("server_args=%s", vars(arguments))
    if "exit-7" in WORDS:
        sys.exit(7)
    if "stubborn" in WORDS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    if "orphan" in WORDS:
        subprocess.run(["/bin/sh", "-c", "sleep 0.2 & exit 0"])
    if "worker" in WORDS:
        worker = subprocess.Popen(["/bin/sleep", "600"])
        with open(os.environ["STATE_PATH"] + "/worker", "w") as file:
            file.write(str(worker.pid))
    if "daemon" in WORDS:
        told = os.environ["STATE_PATH"] + "/worker"
        script = "setsid /bin/sh -c 'echo $$ >%s.new; mv %s.new %s; trap : TERM; while :; do sleep 1; done' &"
        subprocess.run(["/bin/sh", "-c", script % (told, told, told)])
        while not os.path.exists(told):
            time.sleep(0.01)
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_): pass
        def reply(self, status, value):
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        def allowed(self):
            return not arguments.api_key or self.headers["Authorization"] == "Bearer " + arguments.api_key
        def do_GET(self):
            if self.path == "/health":
                self.reply(503 if "never-healthy" in WORDS else 200, {})
            elif self.path == "/server_info" and self.allowed():
                self.reply(200, {"max_total_num_tokens": 749824, "api_key": arguments.api_key})
            else:
                self.reply(401, {})
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if not self.allowed():
                return self.reply(401, {})
            text = "\\u6df1\\u5ea6" * 9 if "garbage" in WORDS else "The sea is wide and blue."
            with open(os.environ["STATE_PATH"] + "/requests", "a") as file:
                file.write(json.dumps([len(body["messages"][0]["content"].split()), body["max_tokens"]]) + "\\n")
            self.reply(200, {"choices": [{"message": {"content": text}}]})
    ThreadingHTTPServer(("127.0.0.1", int(arguments.port)), Handler).serve_forever()
"""
_ARGUMENTS = """
import types
def prepare_server_args(argv):
    return types.SimpleNamespace(argv=list(argv), port=argv[argv.index("--port") + 1], api_key=None)
"""
_PLUGINS = """
from importlib.metadata import entry_points
def load_plugins():
    for point in entry_points(group="sglang.srt.plugins"):
        point.load()()
"""
_UTILS = """
def kill_process_tree(pid, include_parent): pass
"""


def write_stand_in(folder: Path) -> Path:
    """The folder for PYTHONPATH."""
    for name, text in {
        "sglang/__init__.py": "",
        "sglang/launch_server.py": _LAUNCH,
        "sglang/srt/__init__.py": "",
        "sglang/srt/server_args.py": _ARGUMENTS,
        "sglang/srt/plugins.py": _PLUGINS,
        "sglang/srt/utils.py": _UTILS,
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder
