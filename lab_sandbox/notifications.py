"""What a partner is told: Task status changes ("Events"; the channel is not shown there, so they can be listed)."""

from lab_sandbox.exact_json import Json
from lab_sandbox.path_aliases import ORDER_TASK_CODE
from lab_sandbox.references import parse_reference
from lab_sandbox.resource_store import StoredResource
from lab_sandbox.search_index import as_list, concept_codes


def build_task_notification(stored: StoredResource, before: Json, after: Json, now: str) -> Json | None:
    """The notice that an update of a Task causes, or None when its status did not change.

    Fields: `task` and `order_task` (references), `level` (order or line), `status`, `previous`, `version`, `time`.
    """
    if stored.ref.type != "Task" or before.get("status") == after.get("status"):
        return None
    is_order = ORDER_TASK_CODE in set(concept_codes(after.get("code")))
    parents = (
        []
        if is_order
        else [parse_reference(one.get("reference")) for one in as_list(after.get("partOf")) if isinstance(one, dict)]
    )
    order = next((ref.key() for ref in parents if ref is not None), stored.ref.key() if is_order else None)
    return {
        "task": stored.ref.key(),
        "order_task": order,
        "level": "order" if is_order else "line",
        "status": after.get("status"),
        "previous": before.get("status"),
        "version": stored.version,
        "time": now,
    }
