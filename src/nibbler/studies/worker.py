"""A local worker process: takes runs from its parent line by line, and tells what happens to them.

A line has one run, or several of Rainbow to run side by side. Both directions are JSON, one object per
line, over the worker's standard input and output. An agent that prints does not disturb this: its output
goes to standard error. When the parent dies its end of the pipe closes, and the worker saves what it is
doing and leaves.
"""

from __future__ import annotations

import json
import os
import select
import sys
from typing import Any

from nibbler.studies.events import RunEvent
from nibbler.studies.execute import attempt
from nibbler.studies.packs import run_packs
from nibbler.studies.spec import RunSpec
from nibbler.studies.store import ResultsFolder


class _Parent:
    """The worker's end of the line."""

    def __init__(self) -> None:
        self._in = os.dup(0)
        self._out = os.dup(1)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(2, 1)
        self._pending = b""
        self.gone = False

    def receive(self) -> dict[str, Any] | None:
        """The next message, waiting for it; None when the parent is gone."""
        while b"\n" not in self._pending:
            self._read()
            if self.gone:
                return None
        line, _, self._pending = self._pending.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def asks_to_stop(self) -> bool:
        """Whether the parent sent anything (while a run works, that can only be "stop") or is gone."""
        if not self.gone and b"\n" not in self._pending and select.select([self._in], [], [], 0)[0]:
            self._read()
        return self.gone or b"\n" in self._pending

    def send(self, event: RunEvent) -> None:
        try:
            with open(self._out, "wb", closefd=False) as out:
                out.write(json.dumps(event.to_dict()).encode() + b"\n")
        except BrokenPipeError:
            self.gone = True

    def _read(self) -> None:
        chunk = os.read(self._in, 65536)
        self._pending += chunk
        self.gone = not chunk


def main() -> None:
    """Serve the parent until it hangs up or says stop."""
    parent = _Parent()
    while (message := parent.receive()) is not None and "stop" not in message:
        specs = [RunSpec.from_dict(data) for data in message["specs"]]
        results = ResultsFolder(message["folder"])
        talk = {"stop": parent.asks_to_stop, "on_event": parent.send, **message["options"]}
        if len(specs) > 1:
            run_packs("jax", specs, results, **talk)
        else:
            parent.send(attempt(specs[0], results.run(specs[0]), **talk))
        sys.stderr.flush()
