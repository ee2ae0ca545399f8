"""Die at the n-th touch of the disk, for every n, resume, and compare with a run that was never disturbed.

Run as a script: it forks once per moment of death, which needs a process without threads.
"""

import os
import signal
import sys
from pathlib import Path

from nibbler.studies.execute import execute
from nibbler.studies.provenance import provenance
from nibbler.studies.spec import RunSpec
from nibbler.studies.store import ResultsFolder

SPEC = RunSpec({"import": "toy:make_env"}, {"import": "toy:make_run"}, 1_000, 5, bin_size=500)


def in_child(work):
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    return os.waitpid(child, 0)[1]


def die_at(moment):
    """Die just before the n-th call that changes the disk (which is just after the call before it)."""
    count = 0

    def watched(call):
        def wrapper(*arguments, **named):
            nonlocal count
            count += 1
            if count == moment:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **named)

        return wrapper

    for name in ("replace", "fsync", "unlink", "mkdir"):
        setattr(os, name, watched(getattr(os, name)))


def main(folder):
    def run(where):
        results = ResultsFolder(where)
        (results.path / "runs").mkdir(parents=True, exist_ok=True)
        return results.run(SPEC)

    provenance()  # ask git once, not in every child
    files = ("curve.parquet", "snapshots.parquet", "features.parquet")
    in_child(lambda: execute(SPEC, run(folder / "whole")))
    whole = [(run(folder / "whole").path / name).read_bytes() for name in files]
    moment, killed, resumed = 0, True, 0
    while killed:
        moment += 1
        where = folder / f"moment-{moment}"

        def broken(where=where, moment=moment):
            place = run(where)
            die_at(moment)
            execute(SPEC, place, save_every=0.0)

        killed = in_child(broken) == signal.SIGKILL
        place = run(where)
        resumed += bool(place.checkpoints())

        def again(place=place):
            execute(SPEC, place, save_every=0.0)

        assert in_child(again) == 0, f"resuming after moment {moment} failed"
        assert place.finished
        for name, content in zip(files, whole, strict=True):
            assert (place.path / name).read_bytes() == content, (
                f"{name} differs after death at moment {moment}"
            )
        assert not [path.name for path in place.path.iterdir() if path.name.endswith(".part")]
    print(moment - 1, resumed)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
