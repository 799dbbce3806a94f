"""How raw bytes are shown: line by line, with control characters visible, and what is no text in hexadecimal."""

import pytest

from lab_agent.domain.refused_messages import raw_lines
from lab_agent.domain.text import escape_unprintable


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
        (b"", None, [""]),
        (b"MSH", None, ["MSH"]),
    ],
)
def test_text_is_shown_line_by_line(raw: bytes, encoding: str | None, lines: list[str]) -> None:
    assert list(raw_lines(raw, encoding)) == lines


def test_binary_is_shown_in_hexadecimal() -> None:
    shown = list(raw_lines(bytes(range(32)) + b"ABC"))
    assert shown[0] == "00000000  00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f  ................"
    assert shown[2].split() == ["00000020", "41", "42", "43", "ABC"]


def test_no_bytes_can_steer_a_terminal_or_fail() -> None:
    for byte in range(256):
        for raw in (bytes([byte]), b"MSH|" + bytes([byte]) * 3, b"\xff\xfe" + bytes([byte])):
            assert all(escape_unprintable(line) == line and "\r" not in line for line in raw_lines(raw, "koi8-r")), raw
