"""How a group of a result refers to its order and lines, and by what its report is known from message to message."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from datetime import UTC, datetime, tzinfo

from lab_agent.lis.hl7v2.field_map import FieldMap
from lab_agent.lis.hl7v2.parser import FieldPath
from lab_agent.lis.hl7v2.results.obx_values import InvalidValueError
from lab_agent.lis.hl7v2.results.organisms import is_antibiogram
from lab_agent.lis.hl7v2.results.parent_results import parent_name
from lab_agent.lis.hl7v2.results.segment_groups import ObrGroup
from lab_agent.lis.hl7v2.timestamps import InvalidTimestampError, parse_date_or_time
from lab_agent.shared.ids import is_line_key, is_order_key
from lab_agent.shared.values import DateOrTime

_MAX_ID_LENGTH = 200
_FILLER = (FieldPath("OBR", 3, 1),)
_PLACER = (FieldPath("OBR", 2, 1), FieldPath("ORC", 2, 1))
_CODES = (FieldPath("OBR", 4, 1), FieldPath("OBR", 4, 4), FieldPath("OBR", 4, 2))


@dataclass(frozen=True, slots=True)
class OrderReferences:
    """How a group refers to its order and lines. `items` are codes of the order, by `[tables.items]`."""

    lines: tuple[str, ...]
    order: str | None
    accession: str | None
    barcode: str | None
    items: tuple[str, ...]

    @property
    def has_any(self) -> bool:
        """Whether the order can be found by any of them."""
        return bool(self.lines or self.order or self.accession or self.barcode)

    @property
    def name(self) -> str:
        """The narrowest of the numbers."""
        return self.accession or "+".join(self.lines) or self.order or self.barcode or ""

    @property
    def completes(self) -> tuple[str, ...] | None:
        """What a final report completes: what it covers, if it says which test it is.

        Else it completes the line that its number means, and nothing where that number is one of several lines: it would
        otherwise complete every test of an order with the first result.
        """
        return None if self.lines or self.items else (self.name,)

    @property
    def names(self) -> tuple[str, ...]:
        """What it is about: the lines, or the number where no line is named."""
        return self.lines or ((self.name,) if self.name else ())


def read_order_references(group: ObrGroup, field_map: FieldMap) -> OrderReferences:
    """Read the references of a group. Raises `InvalidValueError` if they contradict each other."""
    places = field_map.results.paths
    lines = _read_lines(group, places["line"])
    orders = {text for place in places["order"] for text in group.find_all((place,)) if is_order_key(text)}
    if len(orders) > 1:
        raise InvalidValueError("names several orders of ours")
    return OrderReferences(
        lines=lines,
        order=next(iter(orders), None),
        accession=group.find_first(places["accession"]) or None,
        barcode=group.find_first(places["barcode"]) or None,
        items=() if lines else tuple(_read_items(group, field_map)),
    )


def build_report_id(group: ObrGroup, references: OrderReferences) -> str:
    """The id of a report whose LIS gives none: everything that tells it from the other reports of its order.

    Two tests of one number, two lines of one test and two isolates of one culture are different reports. Where our line keys say
    which part it is, no filler number takes part: many systems give one only with the final result. Susceptibilities keep it,
    since a further isolate of the line may come in a message of its own.
    """
    filler = group.find_first(_FILLER)
    if references.lines and not is_antibiogram(group.obx_entries):
        name, filler = "+".join(references.lines), ""
    else:
        name = references.name
    parts = [name]
    if references.lines and name == references.accession:
        parts.append("+".join(references.lines))
    parts += [group.find_first(_CODES), parent_name(group)]
    if filler not in {references.accession or "", ""}:
        parts.append(filler)
    return join_report_id(parts)


def join_report_id(parts: Iterable[str]) -> str:
    """The parts of a report's id as one, of limited length."""
    known = [part for part in parts if part]
    whole = "/".join(known)
    return whole if len(whole) <= _MAX_ID_LENGTH else f"{known[0][:100]}/{hashlib.sha256(whole.encode()).hexdigest()}"


@dataclass(frozen=True, slots=True)
class Distinction:
    """What tells an OBR from another one of the same report; first what changes least, since ids are made of it."""

    barcode: str
    placer: str
    filler: str
    collected: str

    @classmethod
    def read(cls, group: ObrGroup, references: OrderReferences, field_map: FieldMap, zone: tzinfo | None) -> Distinction:
        """Read it; one moment is the same in any time zone, and with or without seconds."""
        text = group.find_first(field_map.results.paths["collected"])
        with suppress(InvalidTimestampError):  # it is refused when it is read
            text = _in_utc(parse_date_or_time(text, zone)) if text else ""
        return cls(references.barcode or "", group.find_first(_PLACER), group.find_first(_FILLER), text)


def _in_utc(moment: DateOrTime) -> str:
    return moment.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ") if isinstance(moment, datetime) else moment.text


def _telling_numbers(told: Sequence[tuple[str, ...]]) -> list[int]:
    """Which of the values tell apart: one that is enough where there is one, so that a correction of the others changes no id."""
    columns = list(zip(*told, strict=True))
    telling = [number for number, values in enumerate(columns) if len({*values} - {""}) > 1]
    different = len({tuple(values[number] for number in telling) for values in told})
    return next(([number] for number in telling if "" not in columns[number] and len({*columns[number]}) == different), telling)


def tell_apart(report_ids: Sequence[str | None], distinctions: Sequence[Distinction | None]) -> list[str | None]:
    """The ids of the reports of a message, with what tells those apart that would have the same one.

    Several OBR are one report only if nothing tells them apart. An id is empty where its OBR may belong to any of several: it
    lacks what tells those apart.
    """
    places: dict[str, list[int]] = {}
    for place, (report_id, distinction) in enumerate(zip(report_ids, distinctions, strict=True)):
        if report_id and distinction:
            places.setdefault(report_id, []).append(place)
    found = list(report_ids)
    for report_id, same in places.items():
        if len(same) > 1:
            told = [astuple(one) for place in same if (one := distinctions[place])]
            telling = _telling_numbers(told)
            for place, values in zip(same, told, strict=True):
                own = [values[number] for number in telling]
                found[place] = join_report_id((report_id, *own)) if all(own) else ""
    return found


def read_cancellation(group: ObrGroup, field_map: FieldMap) -> str:
    """What ORC-1 and ORC-5 say of a cancellation, by the tables `order_control` and `order_status`: `refused`, `held` or ``."""
    if group.orc is None:
        return ""
    given = (("order_control", group.orc.text(1)), ("order_status", group.orc.text(5)))
    return next((meaning for table, code in given if (meaning := field_map.table(table).get(code, ""))), "")


def _read_lines(group: ObrGroup, paths: tuple[FieldPath, ...]) -> tuple[str, ...]:
    """The line keys at the first path that has any. What the other paths name must be among them, or the other way round."""
    found = [keys for path in paths if (keys := tuple(dict.fromkeys(_keys_at(group, path))))]
    first = found[0] if found else ()
    if any(not (set(first) <= set(keys) or set(keys) <= set(first)) for keys in found):
        raise InvalidValueError("names different lines of ours in different places, such as OBR-2 and ORC-2")
    return first


def _keys_at(group: ObrGroup, path: FieldPath) -> Iterator[str]:
    return (text for text in group.find_all((path,)) if is_line_key(text))


def _read_items(group: ObrGroup, field_map: FieldMap) -> Iterator[str]:
    """The codes of the test: by `[tables.items]` if any of them is there, else the first as it stands."""
    table, paths = field_map.table("items"), field_map.results.paths["item"]
    given = [group.find_all((path,)) for path in paths]
    known = next((codes for codes in given if any(table.get(code) for code in codes)), None)
    codes = known if known is not None else next(filter(None, given), ())
    return iter(dict.fromkeys(table.get(code, code) for code in codes))
