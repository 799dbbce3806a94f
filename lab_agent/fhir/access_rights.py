"""The access rights that we give to what we upload (interface: Authentication 8), by the short names of requests."""

from __future__ import annotations

from collections.abc import Collection, Iterator

_CREATOR_RIGHTS = ("read", "readhistory", "updatebody")
"""What correcting an upload takes: it is read again, and replaced."""


def access_rights(readers: Collection[str], own_guid: str | None = None) -> Iterator[dict[str, str]]:
    """Entries of `meta.security`: the `readers` (counterparty guids) may read.

    `own_guid` may read and correct too; it is None where the service gives the creator these rights by itself.
    """
    for reader in dict.fromkeys(readers):
        if reader.strip() and reader != own_guid:
            yield {"system": "read", "code": reader}
    for right in _CREATOR_RIGHTS if own_guid else ():
        yield {"system": right, "code": str(own_guid)}
