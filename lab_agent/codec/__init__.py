"""Orders and results to and from JSON, digit for digit.

This is the form that LIS adapters exchange by file, that the journal keeps and that `lab-agent schema` prints. Reading is
strict, so that a misspelt field is heard of and not lost: unknown keys are refused, times need a zone, a value is a `Decimal`
from the first character to the last. All that is wrong is said at once, each with its path and its mend.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import tzinfo
from typing import Any

from lab_agent import exact_json
from lab_agent.codec.plain import to_plain
from lab_agent.codec.problems import Found, raise_found
from lab_agent.codec.rules import message_rules, order_rules
from lab_agent.codec.schema import schema_of, with_short_names
from lab_agent.codec.wire import read_as
from lab_agent.domain.order import LabOrder
from lab_agent.domain.results import LabMessage, LabReceipt, LabRefusal, LabReport

__all__ = [
    "check_message",
    "dump_message",
    "dump_order",
    "join_identity",
    "load_kept",
    "load_message",
    "load_order",
    "message_schema",
    "order_schema",
    "split_identity",
]

_KINDS: Mapping[str, type[LabReport] | type[LabRefusal] | type[LabReceipt]] = {
    "report": LabReport,
    "refusal": LabRefusal,
    "receipt": LabReceipt,
}
_BOM = b"\xef\xbb\xbf"


def dump_order(order: LabOrder) -> bytes:
    """Write an order. Raises `DataInvalidError` for what JSON cannot say exactly (a float, NaN, a time without a zone)."""
    return _dump(to_plain(order))


def load_order(data: bytes) -> LabOrder:
    """Read an order. Raises `DataInvalidError`, naming every bad field."""
    return _order(_object(data))


def dump_message(message: LabMessage) -> bytes:
    """Write a report, a refusal or a receipt. Raises `DataInvalidError` for what JSON cannot say exactly."""
    kind = next(name for name, target in _KINDS.items() if isinstance(message, target))
    return _dump({"kind": kind, **to_plain(message)})


def load_message(data: bytes, *, time_zone: tzinfo | None = None) -> LabMessage:
    """Read a report (`"kind": "report"`, or no kind), a refusal (`"kind": "refusal"`) or a receipt (`"kind": "receipt"`).

    A time without a zone is refused, unless `time_zone` says which zone the laboratory means by it. Raises
    `DataInvalidError`, naming every bad field; also for a key that is there twice.
    """
    target, tree = _message(_object(data, exact_json.loads_strictly))
    return read_as(target, tree, rules=message_rules(target, tree, time_zone), time_zone=time_zone)


def load_kept(data: bytes) -> LabMessage:
    """Read a message that we kept: it was held against the rules of its day, and those of a later day must not lose it."""
    target, tree = _message(_object(data))
    return read_as(target, tree, rules=[])


def check_message(message: LabMessage) -> LabMessage:
    """Hold a message that was made in Python against the same rules, and give it as it reads back.

    Raises `DataInvalidError`, naming every bad field.
    """
    return load_message(dump_message(message))


def split_identity(order: LabOrder) -> tuple[bytes, bytes]:
    """Part an order into what is medical and who the patient is (law 7): `(medical, identity)`."""
    tree = to_plain(order)
    identity = tree.pop("patient")
    return _dump(tree), _dump(identity)


def join_identity(medical: bytes, identity: bytes) -> LabOrder:
    """Put the two parts of `split_identity` together again; a purged identity is `{}`. Raises `DataInvalidError`."""
    return _order({**_object(medical), "patient": _object(identity)})


def order_schema() -> dict[str, Any]:
    """Give the JSON Schema of an order, as `dump_order` writes it."""
    return schema_of({"": LabOrder}, "LabOrder")


def message_schema() -> dict[str, Any]:
    """Give the JSON Schema of a report, a refusal or a receipt, as `load_message` reads it."""
    return with_short_names(schema_of(_KINDS, "LabMessage"))


def _order(tree: dict[str, Any]) -> LabOrder:
    return read_as(LabOrder, tree, rules=order_rules(tree))


def _message(tree: dict[str, Any]) -> tuple[type[LabReport] | type[LabRefusal] | type[LabReceipt], dict[str, Any]]:
    kind = tree.pop("kind", "report")
    target = _KINDS.get(kind) if isinstance(kind, str) else None
    if target is None:
        raise_found([Found(("kind",), "is neither report, refusal nor receipt", 'write "report", "refusal" or "receipt"')])
    return target, tree


def _object(data: bytes, loads: Callable[[bytes], Any] = exact_json.loads) -> dict[str, Any]:
    try:
        tree = loads(data.removeprefix(_BOM))
    except RecursionError:
        raise_found([Found((), "is nested too deeply", "send one object of the published schema")])
    if not isinstance(tree, dict):
        raise_found([Found((), "is not a JSON object", "send one object of the published schema")])
    return tree


def _dump(tree: dict[str, Any]) -> bytes:
    try:
        return exact_json.dumps(tree)
    except UnicodeEncodeError:
        raise_found([Found((), "holds half of a character (a lone surrogate)", "give text that UTF-8 can write")])
