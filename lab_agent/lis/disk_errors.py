"""What an error of the operating system at a folder means, in plain words, and how it is mended."""

from __future__ import annotations

import errno
from pathlib import Path

from lab_agent.shared.errors import LisDiskFull, LisUnavailable

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_MENDS = {
    errno.EROFS: "it is read-only: mount it for writing",
    errno.EACCES: "permission denied: give the agent's user the right to write there",
    errno.EPERM: "permission denied: give the agent's user the right to write there",
}


def to_lis_failure(error: OSError, what: str) -> LisUnavailable:
    """Make the failure of the contract from an error at `what`, such as `a folder of [lis.main]`; no file is named."""
    if error.errno in _FULL:
        return LisDiskFull(f"the disk of {what} is full: make room there")
    mend = _MENDS.get(error.errno or 0, f"{error.strerror or type(error).__name__}: mount it, or correct its permissions")
    return LisUnavailable(f"{what} cannot be used ({mend})")


class MountWatch:
    """Notices that a share which was mounted at the start is not mounted any more: what is written then, nobody picks up.

    All methods block.
    """

    def __init__(self) -> None:
        self._outer: dict[Path, int] = {}

    def remember(self, *folders: Path) -> None:
        """Remember on which disk the mount point of each folder is; for one on the machine's own disk, nothing."""
        for folder in folders:
            outer = _outer_device(folder)
            if outer is not None:
                self._outer[folder] = outer

    def check(self) -> None:
        """Raise `LisUnavailable` for a folder on the disk of its mount point, and `OSError` for one that is gone."""
        for folder, outer in self._outer.items():
            if folder.stat().st_dev == outer:
                raise LisUnavailable(f"the share of the folder {folder.name} is not mounted any more: mount it again")


def _outer_device(folder: Path) -> int | None:
    """The device behind the mount point that a folder is on; None if it is on the root of all."""
    own = folder.stat().st_dev
    devices = (parent.stat().st_dev for parent in folder.resolve().parents)
    return next((device for device in devices if device != own), None)
