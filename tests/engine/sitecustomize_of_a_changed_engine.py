"""Laid as `sitecustomize.py` before an engine: in the process that CHANGED_IN names, one function has another name.

The engine's files stay as they are, so only a process that really imports it can notice.
"""

import importlib.abc
import importlib.machinery
import os
import sys

MODULE = "sglang.srt.managers.schedule_batch"


class Renames(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != MODULE:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        run = spec.loader.exec_module

        def changed(module):
            run(module)
            # The target of a spawned child is imported before multiprocessing knows that it is one.
            child = any("multiprocessing.spawn" in word for word in sys.orig_argv)
            if os.environ["CHANGED_IN"] == ("scheduler" if child else "server"):
                module.Req.update_finish_state_of_another_release = module.Req.update_finish_state
                del module.Req.update_finish_state

        spec.loader.exec_module = changed
        return spec


sys.meta_path.insert(0, Renames())
