"""How the stand-in is reached: by its two folders alone, or by a link that carries what lies in them over another way.

Whatever the way, the stand-in itself works on folders: a link puts orders into the one and takes results out of the other.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from lab_sandbox.demo.lis.drop import TEMPORARY_SUFFIX, write_atomically
from lab_sandbox.partner.plain_json import Json, decode, encode


class LisTransport(Protocol):
    """A way to the agent."""

    def run_once(self) -> Iterator[str]:
        """One round: takes what has come, brings what is to go; gives a line about each thing."""
        ...

    def close(self) -> None:
        """Ends it."""
        ...


class FolderTransport:
    """The agent uses the folders itself."""

    def run_once(self) -> Iterator[str]:
        """Nothing to carry."""
        return iter(())

    def close(self) -> None:
        """Nothing to end."""


def outgoing_messages(results: Path) -> Iterator[tuple[Path, Json]]:
    """The messages in the folder for results, oldest first, their documents within them."""
    files = [file for file in results.glob("*.json") if not file.name.endswith(TEMPORARY_SUFFIX)]
    for file in sorted(files, key=lambda one: (one.stat().st_mtime_ns, one.name)):
        yield file, _embed_documents(decode(file.read_bytes()), results)


def remove_sent_message(file: Path) -> None:
    """Removes a message that has arrived, and the documents that lay beside it."""
    for document in decode(file.read_bytes()).get("documents", ()):
        if "file" in document:
            (file.parent / document["file"]).unlink(missing_ok=True)
    file.unlink()


def write_cancellation(orders: Path, cancellation: Json) -> None:
    """Puts a withdrawal into the folder for orders; one that was not taken yet is joined."""
    name = f"{cancellation['order']}.cancel.json"
    earlier = decode((orders / name).read_bytes())["lines"] if (orders / name).exists() else []
    write_atomically(orders, name, encode({**cancellation, "lines": [*earlier, *cancellation["lines"]]}))


def _embed_documents(message: Json, results: Path) -> Json:
    documents = [_embed_content(one, results) for one in message.get("documents", ())]
    return {**message, "documents": documents} if documents else message


def _embed_content(document: Json, results: Path) -> Json:
    if "file" not in document:
        return document
    rest = {key: value for key, value in document.items() if key != "file"}
    return {**rest, "content": base64.b64encode((results / document["file"]).read_bytes()).decode("ascii")}
