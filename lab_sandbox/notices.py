"""What a partner is told: Task status changes ("Events"; the channel is not shown there, so they can be listed)."""

from lab_sandbox.index import codes, listed
from lab_sandbox.names import ORDER_TASK
from lab_sandbox.references import parse
from lab_sandbox.shelf import Kept
from lab_sandbox.wire import Json


def task_notice(kept: Kept, before: Json, after: Json, now: str) -> Json | None:
    """The notice that an update of a Task causes, or None when its status did not change.

    Fields: `task` and `order_task` (references), `level` (order or line), `status`, `previous`, `version`, `time`.
    """
    if kept.ref.type != "Task" or before.get("status") == after.get("status"):
        return None
    is_order = ORDER_TASK in set(codes(after.get("code")))
    parents = [] if is_order else [parse(one.get("reference")) for one in listed(after.get("partOf")) if isinstance(one, dict)]
    order = next((ref.key() for ref in parents if ref is not None), kept.ref.key() if is_order else None)
    return {
        "task": kept.ref.key(),
        "order_task": order,
        "level": "order" if is_order else "line",
        "status": after.get("status"),
        "previous": before.get("status"),
        "version": kept.version,
        "time": now,
    }
