"""References: parsed in every spelling to (type, id), and replaced where they are local to a bundle."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lab_sandbox.path_aliases import canonical_type

LOCAL_REFERENCE_PATTERN = re.compile(r"urn:uuid:[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


@dataclass(frozen=True)
class Ref:
    """The type and id of a resource of this service."""

    type: str
    id: str

    def key(self) -> str:
        """The form used in the search index: `task/<id>`."""
        return f"{self.type.lower()}/{self.id}"

    def format(self, style: str) -> str:
        """The form used in a resource: `task/<id>` (as in the interface document) or `Task/<id>`."""
        return self.key() if style == "lower" else f"{self.type}/{self.id}"


def parse_reference(text: Any, own_addresses: Iterable[str] = ()) -> Ref | None:
    """`task/1`, `fhir/Task/1`, `{base_url}Task/1/_history/2` -> Ref; None for a foreign, local or malformed reference."""
    if not isinstance(text, str):
        return None
    for address in own_addresses:
        base = address.rstrip("/") + "/"
        if text.startswith(base):
            text = text[len(base) :]
            break
    if "://" in text or text.startswith("urn:"):
        return None
    parts = [part for part in text.split("/") if part]
    if parts and parts[0].lower() == "fhir":
        parts = parts[1:]
    if len(parts) == 4 and parts[2] == "_history":
        parts = parts[:2]
    if len(parts) != 2:
        return None
    kind = canonical_type(parts[0])
    return Ref(kind, parts[1]) if kind else None


def is_local_reference(text: Any) -> bool:
    """Whether this is a reference inside a bundle (`urn:uuid:<uuid>`)."""
    return isinstance(text, str) and text.startswith("urn:")


def iter_references(node: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every `reference` in a resource as (element path, value), at any depth."""
    if isinstance(node, dict):
        for key, child in node.items():
            child_path = f"{path}.{key}" if path else key
            if key == "reference" and isinstance(child, str):
                yield child_path, child
            else:
                yield from iter_references(child, child_path)
    elif isinstance(node, list):
        for position, child in enumerate(node):
            yield from iter_references(child, f"{path}[{position}]")


def respell_references(node: Any, own_addresses: Iterable[str], write: Callable[[Ref], str]) -> Any:
    """A copy of the tree in which `write` spells every reference to a resource of this service."""
    if isinstance(node, list):
        return [respell_references(child, own_addresses, write) for child in node]
    if not isinstance(node, dict):
        return node
    changed = {}
    for key, child in node.items():
        ref = parse_reference(child, own_addresses) if key == "reference" else None
        changed[key] = write(ref) if ref else respell_references(child, own_addresses, write)
    return changed


def replace_local_references(node: Any, by_local: Mapping[str, str]) -> Any:
    """A copy of the tree with every local address of the bundle replaced, in any field.

    Only the `value` of an Identifier stays: it is the client's own number, which may be a UUID too.
    """
    if isinstance(node, dict):
        return {key: _replace_in_child(key, child, by_local) for key, child in node.items()}
    if isinstance(node, list):
        return [replace_local_references(child, by_local) for child in node]
    if isinstance(node, str) and node.startswith("urn:"):
        return by_local.get(node.lower(), node)
    return node


def _replace_in_child(key: str, child: Any, by_local: Mapping[str, str]) -> Any:
    return child if key == "value" and isinstance(child, str) else replace_local_references(child, by_local)
