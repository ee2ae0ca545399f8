"""Where a result comes from: versions, the source's commit, the machine."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path
from typing import Any

from nibbler.engines.record import machine_record


@functools.cache
def provenance() -> dict[str, Any]:
    """Versions, machine and, when run from a checkout, the commit of nibbler's source."""
    return {**machine_record(), "commit": source_commit(Path(__file__).parent)}


def source_commit(folder: Path) -> str | None:
    """The commit of the checkout that tracks this folder ("+changes" if it is altered); None if installed."""

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(folder), *arguments],
                capture_output=True,
                text=True,
                timeout=10,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    # An installed copy may lie inside somebody else's checkout: only a tracked source has a commit of ours.
    if not git("ls-files", "--error-unmatch", Path(__file__).name):
        return None
    commit = git("rev-parse", "HEAD")
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".")
    return f"{commit}+changes" if commit and changed else commit
