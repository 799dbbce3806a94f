"""Builds orders and cancellations as HL7 messages, by the field map."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from lab_agent.lis.hl7v2.field_map import MessageLayout
from lab_agent.lis.hl7v2.orders.templates import (
    TemplateValue,
    TemplateValues,
    answer_values,
    container_values,
    has_content,
    line_values,
    order_values,
    render_field,
    specimen_values,
)
from lab_agent.lis.hl7v2.parser import STANDARD_SEPARATORS, escape
from lab_agent.lis.hl7v2.settings import Hl7v2Settings
from lab_agent.lis.hl7v2.timestamps import format_timestamp
from lab_agent.lis.lab_order import LabOrder, OrderLine
from lab_agent.shared.errors import LisRejected
from lab_agent.shared.ids import LineKey

_ACK_CONDITIONS = {"original": ("", ""), "commit": ("AL", "NE"), "enhanced": ("AL", "AL"), "none": ("NE", "NE")}


@dataclass(frozen=True, slots=True)
class OrderBuilder:
    """Builds messages; the time and MSH-10 are arguments."""

    settings: Hl7v2Settings

    def build_order(self, order: LabOrder, control_id: str, now: datetime) -> bytes:
        """Build an order. Raises `LisRejected` if the code page lacks a character."""
        layout = self.settings.field_map.orders[self.settings.order_message]
        shared = order_values(order)
        lines = [self._header_segment(layout, control_id, now, shared), *self._group_segments(layout.once[1:], shared)]
        for number, line in enumerate(order.lines, 1):
            lines += self._line_segments(layout, order, number, line, shared)
        lines += self._group_segments(layout.end, shared)
        return self._encode(lines)

    def build_cancel(self, lines: Sequence[LineKey], reason: str, control_id: str, now: datetime) -> bytes:
        """Build a cancellation of lines."""
        layout = self.settings.field_map.cancels[self.settings.order_message]
        written = [self._header_segment(layout, control_id, now, {})]
        for number, key in enumerate(lines, 1):
            values: dict[str, TemplateValue] = {"line.n": str(number), "line.key": key, "cancel.reason": reason}
            written += self._group_segments(layout.line, values)
        return self._encode(written)

    def header_fields(
        self, message_type: str, control_id: str, now: datetime, ack_conditions: tuple[str, str] = ("", "")
    ) -> dict[int, str]:
        """The fields of MSH; MSH-1 is the separator itself."""
        ours = self.settings
        texts = {
            3: ours.sending_application,
            4: ours.sending_facility,
            5: ours.receiving_application,
            6: ours.receiving_facility,
            10: control_id,
            11: ours.processing_id,
            12: ours.version,
            18: ours.charset,
        }
        fields = {number: escape(text) for number, text in texts.items()}
        moment = now.astimezone(ours.zone or UTC).replace(microsecond=0)
        return fields | {
            2: STANDARD_SEPARATORS.encoding_characters,
            7: format_timestamp(moment),
            9: message_type,
            15: ack_conditions[0],
            16: ack_conditions[1],
        }

    def _header_segment(self, layout: MessageLayout, control_id: str, now: datetime, values: TemplateValues) -> str:
        fields = self.header_fields(layout.type, control_id, now, _ACK_CONDITIONS[self.settings.acknowledgement])
        tables = self.settings.field_map.tables
        own = {number: render_field(text, values, tables) for number, text in self.settings.field_map.fields["MSH"].items()}
        return build_segment("MSH", fields | own)

    def _line_segments(
        self, layout: MessageLayout, order: LabOrder, number: int, line: OrderLine, order_level_values: TemplateValues
    ) -> Iterator[str]:
        specimens = tuple(one for one in order.specimens if one.id in line.specimens)
        values = {**order_level_values, **line_values(number, line, specimens)}
        yield from self._group_segments(layout.line, values)
        for count, text in enumerate(line.notes, 1):
            yield from self._group_segments(layout.note, {**values, "note.n": str(count), "note.text": text})
        for count, answer in enumerate(order.answers if number == 1 else (), 1):
            yield from self._group_segments(layout.answer, {**values, **answer_values(count, answer)})
        for count, one in enumerate(specimens, 1):
            within = {**values, **specimen_values(count, one)}
            yield from self._group_segments(layout.specimen, within)
            for place, tube in enumerate(one.containers, 1):
                yield from self._group_segments(layout.container, {**within, **container_values(place, tube)})

    def _group_segments(self, names: Sequence[str], values: TemplateValues) -> Iterator[str]:
        for name in names:
            fields = self.settings.field_map.fields[name]
            if has_content(fields, values):
                tables = self.settings.field_map.tables
                rendered = {number: render_field(text, values, tables) for number, text in fields.items()}
                yield build_segment(name.partition(".")[0], rendered)

    def _encode(self, lines: Sequence[str]) -> bytes:
        errors = "replace" if self.settings.unencodable == "replace" else "strict"
        try:
            return ("\r".join(lines) + "\r").encode(self.settings.encoding, errors)
        except UnicodeEncodeError as exc:
            name = exc.object[: exc.start].rpartition("\r")[2][:3]
            raise LisRejected(
                f"{name} contains a character that the code page {self.settings.encoding} lacks:"
                " set encoding to utf-8, or unencodable to replace"
            ) from None


def build_segment(name: str, fields: Mapping[int, str], separator: str = STANDARD_SEPARATORS.field) -> str:
    """Build a segment from fields that are HL7 already. MSH's first field is the separator."""
    last = max((number for number, text in fields.items() if text), default=0)
    first = 2 if name == "MSH" else 1
    return separator.join((name, *(fields.get(number, "") for number in range(first, last + 1))))
