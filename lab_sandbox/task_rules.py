"""What a Task may become when it is updated ("Resources", Task): a status that there is, and errors as text in output."""

from lab_sandbox.index import as_list
from lab_sandbox.outcome import Problems
from lab_sandbox.shapes import is_text
from lab_sandbox.wire import Json

TASK_STATUSES = (
    "draft",
    "requested",
    "received",
    "accepted",
    "rejected",
    "ready",
    "cancelled",
    "in-progress",
    "on-hold",
    "failed",
    "completed",
    "entered-in-error",
)


def check_task(task: Json, problems: Problems) -> None:
    """Judges the Task that a PUT brings."""
    if task.get("status") not in TASK_STATUSES:
        problems.add("Task.status", "task-status", f"one of {', '.join(TASK_STATUSES)}", "value")
    for position, one in enumerate(as_list(task.get("output"))):
        if not isinstance(one, dict) or not is_text(one.get("valueString")):
            problems.add(f"Task.output[{position}]", "task-output", "valueString with the error text is expected")
