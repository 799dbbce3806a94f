"""Any text in any field survives the way out, the wire and the way in; and nothing of it becomes structure."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import hl7
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab_agent.lis.hl7v2.orders.order_builder import OrderBuilder
from lab_agent.lis.hl7v2.parser import Separators, decode_message, escape, unescape
from lab_agent.lis.hl7v2.settings import Hl7v2Settings
from lab_agent.lis.hl7v2.transport.mllp import Frame, FrameDecoder, wrap_frame
from lab_agent.lis.lab_order import LabOrder, OrderAnswer, OrderPatient
from lab_agent.lis.testing import make_order
from lab_agent.shared.errors import LisRejected

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
HOSTILE = st.text("\\|^~&\r\n\x0b\x1c\x00FSTREX.br0D ёЯ\u2028", min_size=1, max_size=30)
NOW = datetime(2024, 5, 17, 8, 30, tzinfo=UTC)


def writer(**keys: object) -> OrderBuilder:
    links = {"orders": {"role": "client", "port": 1}, "folder": Path("x"), "duplicates": "msh10"}
    return OrderBuilder(Hl7v2Settings.model_validate({**links, **keys}))


@settings(deadline=None)
@given(TEXT | HOSTILE, st.just("|^~\\&") | st.permutations("$%@!?"))
def test_escape_any_text_round_trips(text: str, marks: str | list[str]) -> None:
    """Escaped text holds no separator or framing byte, and unescaping gives the text back."""
    separators, escape_mark = Separators(*marks), marks[3]
    escaped = escape(text, separators)
    assert not set(escaped) & ({*marks, *"\r\n\x0b\x1c\x00"} - {escape_mark})
    assert unescape(escaped, separators) == text


def hostile_order(text: str) -> LabOrder:
    order = make_order(3)
    line = replace(order.lines[0], text=text, lab_code=text, notes=(text, text), old_order_number=text)
    tube = replace(order.specimens[0].containers[0], barcode=text, second_barcode=text, type=text)
    specimens = (
        replace(order.specimens[0], type=text, method=text, supporting_info=text, containers=(tube,)),
        *order.specimens[1:],
    )
    line = replace(line, specimens=(specimens[0].id,))
    patient = OrderPatient(family=text, given=(text, text), gender="male")
    answers = (OrderAnswer(link_id=text, text=text, values=(text,)), OrderAnswer(link_id="b", values=(False,)))
    return replace(order, patient=patient, lines=(line,), specimens=specimens, answers=answers, contract=text)


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given((TEXT | HOSTILE).filter(lambda text: bool(text.strip(" "))))
def test_order_any_field_text_survives_transmission(text: str) -> None:
    """Any text in any field of an order comes back from the framed message as one value."""
    order = hostile_order(text)
    sent = wrap_frame(writer().build_order(order, order.key, NOW))
    [frame] = FrameDecoder(10**6).feed(sent)
    assert isinstance(frame, Frame)
    message = decode_message(frame.data, "utf-8")
    names = [segment.name for segment in message.segments]
    assert names == ["MSH", "PID", "NTE", "NTE", "PV1", "ORC", "OBR", "NTE", "NTE", "OBX", "OBX", "SPM", "SAC"]
    by_name = {segment.name: segment for segment in message.segments}
    places = {
        "PID": ((5, 1), (5, 2), (5, 3)),
        "ORC": ((8, 1), (21, 1)),
        "OBR": ((4, 1), (4, 2)),
        "NTE": ((3, 1),),
        "SPM": ((2, 1), (4, 1), (14, 1), (27, 1), (31, 1)),
        "SAC": ((3, 1), (4, 1)),
    }
    found = {
        name: [by_name[name].first_repetition(field).component_text(component) for field, component in each]
        for name, each in places.items()
    }
    assert found == {name: [text] * len(each) for name, each in places.items()}
    first_answer = next(segment for segment in message.segments if segment.name == "OBX")
    assert [first_answer.first_repetition(field).component_text(1) for field in (3, 5)] == [text, text]
    assert by_name["OBX"].text(5) == "N"


@settings(deadline=None, max_examples=40)
@given(TEXT.filter(lambda text: bool(text.strip(" "))))
def test_order_message_parsed_by_python_hl7(text: str) -> None:
    order = hostile_order(text)
    parsed = hl7.parse(writer().build_order(order, order.key, NOW).decode())
    assert [str(segment[0]) for segment in parsed][:7] == ["MSH", "PID", "NTE", "NTE", "PV1", "ORC", "OBR"]
    if text.isprintable():  # it knows no escapes for the rest, and keeps them
        assert parsed.unescape(str(parsed.segment("SAC")[3])) == text
    assert str(parsed.segment("ORC")[2]) == order.lines[0].key


@pytest.mark.parametrize(("page", "name"), [("cp1251", "CP1251"), ("iso-8859-5", "8859/5"), ("UTF-8", "UNICODE UTF-8")])
def test_order_code_page_round_trips(page: str, name: str) -> None:
    order = replace(make_order(3), patient=OrderPatient(family="Тестова", given=("Ёлка",)))
    data = writer(encoding=page).build_order(order, order.key, NOW)
    message = decode_message(data, "ascii")
    assert message.header.text(18) == name
    assert message.first_segment("PID").first_repetition(5).component_text(1) == "Тестова"  # type: ignore[union-attr]


def test_order_unencodable_character_rejected_or_replaced() -> None:
    """A character missing from the code page waits for the operator, or is replaced where the settings say so."""
    order = replace(make_order(3), patient=OrderPatient(family="Ünal"))
    with pytest.raises(LisRejected, match="PID contains a character") as rejection:
        writer(encoding="cp1251").build_order(order, order.key, NOW)
    assert "nal" not in str(rejection.value).replace("replace", "")
    assert b"?nal" in writer(encoding="cp1251", unencodable="replace").build_order(order, order.key, NOW)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        *((r"a\.br\b", "a\nb"), (r"a\.BR\b", "a\nb"), (r"\.sp2\x", "\n\nx"), (r"\.sk5\x", "     x"), (r"\H\bold\N\ ", "bold ")),
        *((r"\X41420D\c", "AB\rc"), (r"caf\X00E9\ ", "café "), (r"\X0444\x", "фx"), (r"\X00A0\x", "\u00a0x")),
        *((text, text) for text in (r"C:\dir", r"\Zxx\y", "lone \\", r"\XF0\z")),
        (r"\C2842\a\M2442\b", "ab"),
    ],
)
def test_unescape_foreign_escapes_decoded(written: str, meant: str) -> None:
    assert unescape(written) == meant


@pytest.mark.parametrize(
    ("written", "page", "meant"),
    [
        (r"\X00E9\x", "cp1251", "éx"),
        (r"\XE9\x", "cp1251", "йx"),
        (r"\XE9E9\x", "cp1251", "ййx"),
        (r"\X41A0\x", "iso8859-1", "A\u00a0x"),
        (r"\C2D4C\x", "iso8859-5", "x"),
        (r"\C2D4C\x", "iso8859-1", r"\C2D4C\x"),
    ],
)
def test_unescape_follows_code_page_of_message(written: str, page: str, meant: str) -> None:
    """Bytes are in the message's code page where they are text in it; a switch to another one stays in sight."""
    assert unescape(written, encoding=page) == meant
