from __future__ import annotations

from copy import deepcopy
from decimal import Decimal
from typing import Any

import pytest
from fhir.resources.STU3.task import Task
from hypothesis import given
from hypothesis import strategies as st

from lab_agent.fhir.task_update import build_task_update, is_task_updated, task_status
from lab_agent.shared import exact_json
from tests.harness.stu3_schema import as_json

TASK = {
    "resourceType": "Task",
    "id": "t1",
    "meta": {
        "versionId": "3",
        "security": [
            {"system": "https://exchange.example/api/security/updatebody", "code": "g"},
            {"system": "read", "code": "g"},
        ],
    },
    "status": "requested",
    "extension": [{"url": "x", "valueDecimal": Decimal("1.20")}],
    "output": [{"type": {"text": "theirs"}, "valueString": "their words"}, {"valueReference": {"reference": "x/1"}}],
}


def test_update_changes_only_our_fields_on_copy() -> None:
    """Only our fields change, and the input does not."""
    before = deepcopy(TASK)
    changed = build_task_update(TASK, status="cancelled", outputs=("no barcode",))
    assert before == TASK
    error = {"type": {"text": "error"}, "valueString": "no barcode"}
    assert changed == {**TASK, "status": "cancelled", "output": [*TASK["output"], error]}
    assert b"1.20" in exact_json.dumps(changed)


def test_cancelled_task_is_valid_stu3() -> None:
    """STU3 requires a type of every output; the status and intent of the Task are the partner's."""
    read = {"resourceType": "Task", "id": "t1", "intent": "order", "status": "requested"}
    cancelled = build_task_update(read, status="cancelled", outputs=("no barcode", "no contract"))
    Task.model_validate(as_json(cancelled))
    assert [each["valueString"] for each in cancelled["output"]] == ["no barcode", "no contract"]


def test_outdated_status_texts_replaced_and_others_kept() -> None:
    """Sentences of ours that no longer hold are replaced, and others stay."""
    once = build_task_update(TASK, status="cancelled", outputs=("old", "both"))
    again = build_task_update(once, status="cancelled", outputs=("both", "new"), replaces=("old", "both"))
    assert [each.get("valueString") for each in again["output"]] == ["their words", None, "both", "new"]


@pytest.mark.parametrize("output", [{"valueString": "theirs"}, [{"valueString": "theirs"}], "theirs"])
def test_output_of_others_in_another_type_stays(output: Any) -> None:
    changed = build_task_update({"status": "requested", "output": output}, status="cancelled", outputs=("ours",))
    assert changed["output"][:-1] == (output if isinstance(output, list) else [output])


def test_omitted_outputs_stay() -> None:
    for outputs in (None, ()):
        assert build_task_update(TASK, status="completed", outputs=outputs)["output"] == TASK["output"]
    assert "output" not in build_task_update({"status": "requested"}, status="completed", outputs=())


def test_already_applied_update_detected() -> None:
    done = build_task_update(TASK, status="cancelled", outputs=("a",))
    assert is_task_updated(done, "cancelled", ("a",))
    assert is_task_updated(done, "cancelled", None)
    assert not is_task_updated(done, "cancelled", ("b",))
    assert not is_task_updated(done, "completed", ("a",))
    assert task_status({"status": 5}) is None
    assert is_task_updated({**done, "status": "CANCELLED", "output": {"valueString": "a"}}, "cancelled", ("a",))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda child: (
        st.lists(child, max_size=3) | st.dictionaries(st.sampled_from(["valueString", "system", "security", "x"]), child)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["status", "output", "meta", "for"]), JSON), st.lists(st.text(max_size=5)))
def test_update_is_effective_and_idempotent_on_any_task(body: dict[str, Any], outputs: list[str]) -> None:
    """Whatever was read, it becomes as wanted and stays so."""
    changed = build_task_update(body, status="cancelled", outputs=outputs)
    assert is_task_updated(changed, "cancelled", outputs)
    assert build_task_update(changed, status="cancelled", outputs=outputs) == changed
