"""An order bundle as it came, taken apart: which entry is what, and under which local address."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lab_sandbox.errors import Problems
from lab_sandbox.exact_json import Json
from lab_sandbox.path_aliases import CREATE_ORDER, ORDER_TASK_CODE, ORDER_TYPES, canonical_type
from lab_sandbox.references import LOCAL_REFERENCE_PATTERN
from lab_sandbox.search_index import concept_codes


@dataclass(frozen=True)
class BundleEntry:
    """One entry of the bundle."""

    element: str
    """Where it stands: `Bundle.entry[2].resource`."""
    full_url: str
    """Its fullUrl in lower case."""
    type: str
    resource: Json


@dataclass(frozen=True)
class OrderBundle:
    """All usable entries of the bundle, in its order."""

    by_full_url: Mapping[str, BundleEntry]

    @property
    def entries(self) -> tuple[BundleEntry, ...]:
        """All entries."""
        return tuple(self.by_full_url.values())

    def of_type(self, kind: str) -> list[BundleEntry]:
        """The entries of one resource type."""
        return [entry for entry in self.by_full_url.values() if entry.type == kind]

    def find(self, full_url: Any, kind: str | None = None) -> BundleEntry | None:
        """The entry under a local address (and of a type), or None."""
        found = self.by_full_url.get(full_url.lower()) if isinstance(full_url, str) else None
        return found if found and kind in (None, found.type) else None

    def order_tasks(self) -> list[BundleEntry]:
        """Order-level Tasks: those with code OrderProcessingTask."""
        return [task for task in self.of_type("Task") if ORDER_TASK_CODE in set(concept_codes(task.resource.get("code")))]

    def line_tasks(self) -> list[BundleEntry]:
        """ProcedureRequest-level Tasks: all others."""
        order_level = {task.full_url for task in self.order_tasks()}
        return [task for task in self.of_type("Task") if task.full_url not in order_level]


def parse_order_bundle(bundle: Json, problems: Problems) -> OrderBundle:
    """Bundle -> Draft ("Resources", Bundle); what is no usable entry is a problem and left out."""
    if bundle.get("type") != "collection":
        problems.add("Bundle.type", "bundle-type", "collection is expected", "value")
    entries = bundle.get("entry")
    if not isinstance(entries, list) or not entries:
        problems.add("Bundle.entry", "bundle-entry", f"{CREATE_ORDER} needs the order's resources", "required")
        return OrderBundle({})
    read: dict[str, BundleEntry] = {}
    for position, raw in enumerate(entries):
        entry = _parse_entry(raw, f"Bundle.entry[{position}]", problems)
        if entry is not None and entry.full_url in read:
            problems.add(f"Bundle.entry[{position}].fullUrl", "bundle-full-url", "each entry has its own", "duplicate")
        elif entry is not None:
            read[entry.full_url] = entry
    return OrderBundle(read)


def _parse_entry(raw: Any, element: str, problems: Problems) -> BundleEntry | None:
    resource = raw.get("resource") if isinstance(raw, dict) else None
    if not isinstance(raw, dict) or not isinstance(resource, dict):
        problems.add(f"{element}.resource", "bundle-entry", "each entry has fullUrl and resource", "required")
        return None
    local, kind = raw.get("fullUrl"), canonical_type(str(resource.get("resourceType")))
    if not isinstance(local, str) or not LOCAL_REFERENCE_PATTERN.fullmatch(local):
        problems.add(f"{element}.fullUrl", "bundle-full-url", "urn:uuid:<uuid> is expected")
        return None
    if kind not in ORDER_TYPES or kind != resource.get("resourceType"):
        allowed = ", ".join(sorted(ORDER_TYPES))
        problems.add(
            f"{element}.resource.resourceType",
            "bundle-types",
            f"an order is made of {allowed}; came: {resource.get('resourceType')!r}",
        )
        return None
    return BundleEntry(f"{element}.resource", local.lower(), kind, resource)
