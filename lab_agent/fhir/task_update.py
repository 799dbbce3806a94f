"""Task updates: only our own fields change, everything else goes back exactly as it was read (law 4).

A PUT replaces the whole resource, so what is left out here would be lost there. Outputs are merged: a sentence that is there
already is not added again, and other parties' outputs stay as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from lab_agent.fhir.elements import code_of, codes_of, has_code, items_of, objects_of

Json = Mapping[str, Any]
_OUTPUT_TYPE = {"text": "error"}
"""Task.output.type, which STU3 requires and the interface does not show: what the sentence is, as the interface calls it."""


def task_status(body: Json) -> str | None:
    """The status of a Task, in small letters; None where it has none."""
    return code_of(body.get("status"))


def task_codes(body: Json) -> frozenset[str]:
    """The codes of a Task as they are written, whatever their systems."""
    return codes_of(body.get("code"))


def has_task_code(body: Json, codes: Collection[str]) -> bool:
    """Whether a Task has one of these codes."""
    return has_code(body.get("code"), codes)


def own_sentences(body: Json) -> tuple[str, ...]:
    """The sentences that a Task has from us, by the type that we give them."""
    ours = (_output_text(each) for each in objects_of(body.get("output")) if each.get("type") == _OUTPUT_TYPE)
    return tuple(text for text in ours if text is not None)


def is_task_updated(body: Json, status: str, outputs: Sequence[str] | None) -> bool:
    """Whether a Task has this status and carries these sentences already (None: whatever its outputs are)."""
    return task_status(body) == status and (outputs is None or set(outputs) <= _output_texts(body))


def build_task_update(
    body: Json,
    *,
    status: str,
    outputs: Sequence[str] | None,
    replaces: Sequence[str] = (),
) -> Json:
    """Give the Task as it shall be; `body` is not changed.

    `outputs` are our sentences (interface: Task.output[].valueString); None leaves the outputs as they are. `replaces` are
    sentences that we set earlier and that are no longer true. The exchange client takes care of meta.security.
    """
    changed = {**body, "status": status}
    if outputs is not None:
        changed["output"] = _merge_outputs(body.get("output"), outputs, frozenset(replaces) - set(outputs))
        if not changed["output"]:
            del changed["output"]
    return changed


def _merge_outputs(existing: Any, outputs: Sequence[str], obsolete: frozenset[str]) -> list[Any]:
    kept = [each for each in items_of(existing) if _output_text(each) not in obsolete]
    there = {_output_text(each) for each in kept}
    return kept + [{"type": _OUTPUT_TYPE, "valueString": text} for text in dict.fromkeys(outputs) if text not in there]


def _output_texts(body: Json) -> set[str | None]:
    return {_output_text(each) for each in items_of(body.get("output"))}


def _output_text(output: Any) -> str | None:
    value = output.get("valueString") if isinstance(output, Mapping) else None
    return value if isinstance(value, str) else None
