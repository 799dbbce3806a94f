"""Orders and withdrawals as HL7 messages, by the field map."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from lab_agent.domain.ids import LineKey
from lab_agent.domain.order import LabOrder, OrderLine
from lab_agent.errors import LisRefusal
from lab_agent.lis.hl7v2.escapes import STANDARD, escape
from lab_agent.lis.hl7v2.fieldmap import Layout
from lab_agent.lis.hl7v2.settings import Hl7v2Settings
from lab_agent.lis.hl7v2.template import Word, Words, render_field, says_anything
from lab_agent.lis.hl7v2.times import stamp
from lab_agent.lis.hl7v2.words import answer_words, container_words, line_words, order_words, specimen_words

_ACCEPT = {"original": ("", ""), "commit": ("AL", "NE"), "enhanced": ("AL", "AL"), "none": ("NE", "NE")}


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes messages; `now` is an argument, and so is MSH-10."""

    settings: Hl7v2Settings

    def order(self, order: LabOrder, control_id: str, now: datetime) -> bytes:
        """Write an order. Raises `LisRefusal` where the code page has no place for a character."""
        layout = self.settings.field_map.orders[self.settings.order_message]
        once = order_words(order)
        lines = [self._header(layout, control_id, now, once), *self._group(layout.once[1:], once)]
        for number, line in enumerate(order.lines, 1):
            lines += self._line(layout, order, number, line, once)
        lines += self._group(layout.end, once)
        return self._encoded(lines)

    def cancel(self, lines: Sequence[LineKey], reason: str, control_id: str, now: datetime) -> bytes:
        """Write a withdrawal of lines."""
        layout = self.settings.field_map.cancels[self.settings.order_message]
        written = [self._header(layout, control_id, now, {})]
        for number, key in enumerate(lines, 1):
            words: dict[str, Word] = {"line.n": str(number), "line.key": key, "cancel.reason": reason}
            written += self._group(layout.line, words)
        return self._encoded(written)

    def header(self, kind: str, control_id: str, now: datetime, accept: tuple[str, str] = ("", "")) -> dict[int, str]:
        """Give the fields of MSH; MSH-1 is the separator itself."""
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
        return fields | {2: STANDARD.encoding, 7: stamp(moment), 9: kind, 15: accept[0], 16: accept[1]}

    def _header(self, layout: Layout, control_id: str, now: datetime, words: Words) -> str:
        fields = self.header(layout.type, control_id, now, _ACCEPT[self.settings.acknowledgement])
        tables = self.settings.field_map.tables
        own = {number: render_field(text, words, tables) for number, text in self.settings.field_map.fields["MSH"].items()}
        return segment("MSH", fields | own)

    def _line(self, layout: Layout, order: LabOrder, number: int, line: OrderLine, once: Words) -> Iterator[str]:
        specimens = tuple(one for one in order.specimens if one.id in line.specimens)
        words = {**once, **line_words(number, line, specimens)}
        yield from self._group(layout.line, words)
        for count, text in enumerate(line.notes, 1):
            yield from self._group(layout.note, {**words, "note.n": str(count), "note.text": text})
        for count, answer in enumerate(order.answers if number == 1 else (), 1):
            yield from self._group(layout.answer, {**words, **answer_words(count, answer)})
        for count, one in enumerate(specimens, 1):
            within = {**words, **specimen_words(count, one)}
            yield from self._group(layout.specimen, within)
            for place, tube in enumerate(one.containers, 1):
                yield from self._group(layout.container, {**within, **container_words(place, tube)})

    def _group(self, names: Sequence[str], words: Words) -> Iterator[str]:
        for name in names:
            fields = self.settings.field_map.fields[name]
            if says_anything(fields, words):
                tables = self.settings.field_map.tables
                rendered = {number: render_field(text, words, tables) for number, text in fields.items()}
                yield segment(name.partition(".")[0], rendered)

    def _encoded(self, lines: Sequence[str]) -> bytes:
        errors = "replace" if self.settings.unencodable == "replace" else "strict"
        try:
            return ("\r".join(lines) + "\r").encode(self.settings.encoding, errors)
        except UnicodeEncodeError as exc:
            name = exc.object[: exc.start].rpartition("\r")[2][:3]
            raise LisRefusal(
                f"{name} holds a character that the code page {self.settings.encoding} has not:"
                " set encoding to utf-8, or unencodable to replace"
            ) from None


def segment(name: str, fields: Mapping[int, str], separator: str = STANDARD.field) -> str:
    """Write a segment of fields that are HL7 already. MSH's first field is the separator."""
    last = max((number for number, text in fields.items() if text), default=0)
    first = 2 if name == "MSH" else 1
    return separator.join((name, *(fields.get(number, "") for number in range(first, last + 1))))
