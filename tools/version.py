"""The version of a build: the release and the commit that it was built of, so that two builds never have the same one.

The build backend reads it (`pyproject.toml`). A source archive has it in its PKG-INFO, an image build gets it as LAB_BUILD.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

RELEASE = "0.2.0"
ROOT = Path(__file__).parents[1]


def build_version(root: Path = ROOT) -> str:
    """The release alone where nothing tells the commit."""
    build = os.environ.get("LAB_BUILD") or commit_label(root)
    return f"{RELEASE}+{build}" if build else RELEASE


def commit_label(root: Path) -> str:
    """Time (UTC) and hash of the commit, so that later builds are newer versions; with a digest of what was changed since.

    Empty without a repository.
    """
    if not (root / ".git").exists():
        return ""
    label = _git(root, "log", "-1", "--format=%cd.g%h", "--abbrev=10", "--date=format-local:%Y%m%d%H%M%S")
    changes = _git(root, "status", "--porcelain") + _git(root, "diff", "HEAD")
    return f"{label}.changed.d{hashlib.sha256(changes.encode()).hexdigest()[:8]}" if changes else label


def _git(root: Path, *words: str) -> str:
    """The output of a git command; that the checkout is another user's is no obstacle."""
    command = ["git", "-c", "safe.directory=*", "-C", str(root), *words]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=True, env={**os.environ, "TZ": "UTC"})  # noqa: S603
    return done.stdout.strip()


if __name__ == "__main__":
    print(commit_label(ROOT))
