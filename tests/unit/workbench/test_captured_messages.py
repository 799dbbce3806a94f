"""Messages are found in whatever somebody captured, byte for byte."""

from pathlib import Path

import pytest

from lab_agent.results.trial.captured_messages import read_captured, split_messages
from lab_agent.shared.errors import InputError

ONE = b"MSH|^~\\&|A|B|||20260302||ORU^R01|1|P|2.5\rPID|1||7\rOBR|1|||X\rOBX|1|ST|C||v\r"
TWO = ONE.replace(b"|1|P|", b"|2|P|").replace(b"||v", "||ж".encode("cp1251"))
_LINES = [line.decode("latin-1") for line in TWO.split(b"\r") if line]


def in_words(text: bytes) -> bytes:
    return b"<VT>" + text.replace(b"\r", b"<CR>") + b"<FS><CR>"


CAPTURES = {
    "bare": ONE + TWO,
    "byte order mark": b"\xef\xbb\xbf" + ONE + TWO,
    "frames": b"\x0b" + ONE + b"\x1c\r\x0b" + TWO + b"\x1c\r",
    "frames without ends": b"\x0b" + ONE + b"\x0b" + TWO,
    "batch": b"FHS|^~\\&|A\rBHS|^~\\&|A\r" + ONE + TWO + b"BTS|2\rFTS|1\r",
    "log of lines": b"".join(
        f"2026-03-02 10:00:0{number} [INFO] recv: {line}\n".encode("latin-1")
        for number, line in enumerate([*ONE.decode().strip().split("\r"), *_LINES])
    ),
    "log behind words": b"10:00 received\n10:00 " + ONE.replace(b"\r", b"\n") + b"10:01 " + TWO.replace(b"\r", b"\n"),
    "log in words": b"10:00:01 <- " + in_words(ONE) + b"\n10:00:02 <- " + in_words(TWO) + b"\n",
    "log with an answer": b"10:00 " + ONE.replace(b"\r", b"\n") + b"10:00 ack sent\n10:01 " + TWO.replace(b"\r", b"\n"),
}


@pytest.mark.parametrize("name", list(CAPTURES))
def test_messages_are_cut_out_of_a_capture(name: str) -> None:
    assert split_messages(CAPTURES[name]) == [ONE, TWO]


@pytest.mark.parametrize("end", [b"\r\n", b"\n"])
def test_line_ends_of_a_capture_stay_as_they_are(end: bytes) -> None:
    one, two = (each.replace(b"\r", end) for each in (ONE, TWO))
    assert split_messages(one + two) == [one, two]
    assert split_messages(b"\x0b" + one + b"\x1c\r\n\x0b" + two + b"\x1c\r\n") == [one, two]


def test_what_belongs_together_stays_whole() -> None:
    """A text broken by LF, a line that is no segment, the parts of a continued message."""
    broken = ONE.replace(b"||v", b"||JVBE\nRi0x")
    assert split_messages(broken + TWO) == [broken, TWO]
    broken = ONE.replace(b"PID|1||7", b"PID|1||7\rsecond line of a name")
    assert split_messages(broken) == [broken]
    second = b"MSH|^~\\&|A|B|||20260302||ORU^R01|2|P|2.5|2|P1\rOBX|2|ST|D||w\r"
    assert split_messages(ONE + b"DSC|P1|F\r" + second + TWO) == [ONE + b"DSC|P1|F\r" + second, TWO]


OTHERS = [b'{"report_id": "1"}', b"Code;Value\n718-7;13,4\n", b"\x00\xff MSH without a message", b"\xef\xbb\xbfCode;Value\n"]


@pytest.mark.parametrize("data", OTHERS)
def test_anything_else_is_one_message(data: bytes) -> None:
    """With its byte order mark, which says how a file is encoded; an empty file holds none."""
    assert split_messages(data) == [data]
    assert split_messages(b" \r\n") == []


def test_files_of_a_folder_are_read_in_order(tmp_path: Path) -> None:
    (tmp_path / "b.hl7").write_bytes(ONE)
    (tmp_path / "a.hl7").write_bytes(ONE + TWO)
    (tmp_path / ".hidden").write_bytes(ONE)
    found = list(read_captured([tmp_path, Path("-")], lambda: TWO))
    assert [each.name for each in found] == ["a.hl7#1", "a.hl7#2", "b.hl7", "standard input"]
    with pytest.raises(InputError, match="no such file"):
        list(read_captured([tmp_path / "none"], bytes))
