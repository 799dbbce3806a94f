"""How raw bytes are shown: line by line, with control characters visible, and what is no text in hexadecimal."""

import pytest

from lab_agent.results.refused_records import RefusedContent, is_noise, raw_lines, sender_name
from lab_agent.shared.text import escape_unprintable


@pytest.mark.parametrize(
    ("raw", "encoding", "lines"),
    [
        (b"MSH|^~\\&|A\rPID|1||X\rOBX|1\r", None, ["MSH|^~\\&|A", "PID|1||X", "OBX|1"]),
        (b"\x0bMSH|^~\\&|A\r\x1c\r", None, ["␋MSH|^~\\&|A", "␜"]),
        (b"code;value\r\nGLU;5,1\r\n\r\nKAL;4\n", None, ["code;value", "GLU;5,1", "", "KAL;4"]),
        ("Жук\tÄ".encode(), None, ["Жук\tÄ"]),
        ("Жук".encode("cp1251"), "cp1251", ["Жук"]),
        ("Жук".encode("cp1251"), "utf-8", ["\\xc6\\xf3\\xea"]),
        (
            b"MSH|^~\\&||||||||||||||||8859/5\rPID|" + "Жук".encode("iso8859-5"),
            "utf-8",
            ["MSH|^~\\&||||||||||||||||8859/5", "PID|Жук"],
        ),
        (b"MSH|^~\\&||||||||||||||||KLINGON\rPID|\xe4", None, ["MSH|^~\\&||||||||||||||||KLINGON", "PID|\\xe4"]),
        ("Жук\r\n".encode("utf-16"), None, ["Жук"]),
        (b"a\x1b[31mb\x07\x7f", None, ["a␛[31mb␇␡"]),
        ("a\u202eb\u200b".encode(), None, ["a\\u202eb\\u200b"]),
        (
            b"\n\x0bMSH|^~\\&||||||||||||||||8859/5\n" + "Жук".encode("iso8859-5"),
            None,
            ["", "␋MSH|^~\\&||||||||||||||||8859/5", "Жук"],
        ),
        (
            b"MSH|^~\\&||||||||||||||||8859/5~ASCII|A\r" + "Жук".encode("iso8859-5"),
            None,
            ["MSH|^~\\&||||||||||||||||8859/5~ASCII|A", "Жук"],
        ),
        (b"MSH*^~\\&****************8859/1\r\xe4", None, ["MSH*^~\\&****************8859/1", "ä"]),
        (b"MSH|^~\\&||||||||||||||||cp1251\r\xc6", "latin-1", ["MSH|^~\\&||||||||||||||||cp1251", "Ж"]),
        (b"MSH|^~\\&|||||||||||||||\r\xe4", "latin-1", ["MSH|^~\\&|||||||||||||||", "ä"]),
        (b" MSH|^~\\&||||||||||||||||cp1251\r\xe4", "latin-1", [" MSH|^~\\&||||||||||||||||cp1251", "ä"]),
        (b"XMSH|^~\\&||||||||||||||||cp1251\r\xe4", "latin-1", ["XMSH|^~\\&||||||||||||||||cp1251", "ä"]),
        (b"\xe4\xf6", None, ["\\xe4\\xf6"]),
        ("\ufeffЖук".encode(), None, ["Жук"]),
        (b"\\x" * 30, None, ["\\x" * 30]),
        (b"\x01" * 5 + b"a" * 5, None, ["␁" * 5 + "a" * 5]),
        (b"", None, [""]),
    ],
)
def test_text_is_shown_line_by_line(raw: bytes, encoding: str | None, lines: list[str]) -> None:
    assert list(raw_lines(raw, encoding)) == lines


def test_no_bytes_can_steer_a_terminal_or_fail() -> None:
    for byte in range(256):
        for raw in (bytes([byte]), b"MSH|" + bytes([byte]) * 3, b"\xff\xfe" + bytes([byte])):
            assert all(escape_unprintable(line) == line and "\r" not in line for line in raw_lines(raw, "koi8-r")), raw


@pytest.mark.parametrize(
    ("controls", "letters", "is_text"), [(4, 0, True), (5, 0, False), (5, 5, True), (6, 13, False), (6, 14, True)]
)
def test_few_control_characters_are_text(controls: int, letters: int, is_text: bool) -> None:
    first = next(raw_lines(b"\x01" * controls + b"a" * letters))
    assert (first[0] == "␁") is is_text


def test_bytes_in_hexadecimal_have_their_place() -> None:
    assert next(raw_lines(b"\xe4" * 10)).startswith("00000000  e4 e4")
    (first, second) = raw_lines(bytes([0x1F, 0x20, 0x7E, 0x7F, 0x80]) + b"\x00" * 11 + b"A")
    assert first == "00000000  1f 20 7e 7f 80 00 00 00 00 00 00 00 00 00 00 00  . ~............."
    assert second == "00000010  41" + " " * 45 + "  A"


@pytest.mark.parametrize(
    ("raw", "noise"),
    [
        (None, False),
        (b"\xff\xfe\x00\x01", False),
        (b"MSH|\x0b\x1c\r\n\t", False),
        (b"MSH|\x00", True),
        (b"a\x00b\x00", False),
        (b"abc\x00\x00", False),
        (b"abcd\x00\x00", True),
        ("Номер;Результат\r\n".encode("utf-16"), False),
        ("MSH|^~\\&|LIS\rOBX|1\r".encode("utf-16-le"), False),
        (bytes(range(256)), True),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(40, 120)), True),
        (b"a" * 4_096 + b"\x00", False),
        (b"a" * 4_095 + b"\x00", True),
    ],
)
def test_noise_is_no_text_in_any_encoding(raw: bytes | None, noise: bool) -> None:
    assert is_noise(raw) is noise


@pytest.mark.parametrize(
    ("message_id", "name"),
    [
        ("result.json:0123456789abcdef", "result.json"),
        ("result.json:17:42:0123456789abcdef", "result.json"),
        ("result.json:17:42:-", "result.json"),
        ("a:-:b", "a:-:b"),
        ("result.json:0123456789ABCDEF", "result.json:0123456789ABCDEF"),
    ],
)
def test_sender_name_is_without_what_the_adapter_added(message_id: str, name: str) -> None:
    assert sender_name(RefusedContent(message_id=message_id)) == name
