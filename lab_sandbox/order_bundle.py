"""An order bundle as received: its entries by local address and by type."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lab_sandbox.errors import Problems
from lab_sandbox.exact_json import Json
from lab_sandbox.path_aliases import ORDER_TASK_CODE, ORDER_TYPES, canonical_type
from lab_sandbox.references import LOCAL_REFERENCE_PATTERN
from lab_sandbox.search_index import concept_codes


@dataclass(frozen=True)
class BundleEntry:
    """One entry of the bundle."""

    element: str
    """Its path in the bundle: `Bundle.entry[2].resource`."""
    full_url: str
    """Its fullUrl in lower case."""
    type: str
    resource: Json


@dataclass(frozen=True)
class OrderBundle:
    """All usable entries of the bundle, in their order."""

    by_full_url: Mapping[str, BundleEntry]

    @property
    def entries(self) -> tuple[BundleEntry, ...]:
        """All entries, in the order of the bundle."""
        return tuple(self.by_full_url.values())

    def of_type(self, kind: str) -> list[BundleEntry]:
        """The entries of one resource type."""
        return [entry for entry in self.by_full_url.values() if entry.type == kind]

    def find(self, full_url: Any, kind: str | None = None) -> BundleEntry | None:
        """The entry with this local address (and of this type), or None."""
        found = self.by_full_url.get(full_url.lower()) if isinstance(full_url, str) else None
        return found if found and kind in (None, found.type) else None

    def order_tasks(self) -> list[BundleEntry]:
        """Order-level Tasks: those with the code OrderProcessingTask."""
        return [task for task in self.of_type("Task") if ORDER_TASK_CODE in set(concept_codes(task.resource.get("code")))]

    def line_tasks(self) -> list[BundleEntry]:
        """ProcedureRequest-level Tasks: all others."""
        order_level = {task.full_url for task in self.order_tasks()}
        return [task for task in self.of_type("Task") if task.full_url not in order_level]


def parse_order_bundle(bundle: Json, problems: Problems) -> OrderBundle:
    """Reads the bundle ("Resources", Bundle); an unusable entry is a problem and left out."""
    if bundle.get("type") != "collection":
        problems.add("Bundle.type", "bundle-type", "must be collection", "value")
    entries = bundle.get("entry")
    if not isinstance(entries, list) or not entries:
        problems.add("Bundle.entry", "bundle-entry", "required, the resources of the order", "required")
        return OrderBundle({})
    by_full_url: dict[str, BundleEntry] = {}
    for position, raw in enumerate(entries):
        entry = _parse_entry(raw, f"Bundle.entry[{position}]", problems)
        if entry is not None and entry.full_url in by_full_url:
            problems.add(f"Bundle.entry[{position}].fullUrl", "bundle-full-url", "must be unique in the bundle", "duplicate")
        elif entry is not None:
            by_full_url[entry.full_url] = entry
    return OrderBundle(by_full_url)


def _parse_entry(raw: Any, element: str, problems: Problems) -> BundleEntry | None:
    resource = raw.get("resource") if isinstance(raw, dict) else None
    if not isinstance(raw, dict) or not isinstance(resource, dict):
        problems.add(f"{element}.resource", "bundle-entry", "required, each entry has fullUrl and resource", "required")
        return None
    local, kind = raw.get("fullUrl"), canonical_type(str(resource.get("resourceType")))
    if not isinstance(local, str) or not LOCAL_REFERENCE_PATTERN.fullmatch(local):
        problems.add(f"{element}.fullUrl", "bundle-full-url", "must have the form urn:uuid:<uuid>")
        return None
    if kind not in ORDER_TYPES or kind != resource.get("resourceType"):
        text = f"must be one of {', '.join(sorted(ORDER_TYPES))}, not {resource.get('resourceType')!r}"
        problems.add(f"{element}.resource.resourceType", "bundle-types", text)
        return None
    return BundleEntry(f"{element}.resource", local.lower(), kind, resource)
