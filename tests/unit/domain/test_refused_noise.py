"""Which refused bytes are noise: no text in any encoding."""

from __future__ import annotations

import pytest

from lab_agent.domain.refused_messages import is_noise


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (None, False),
        (b"", False),
        (b"\x0bMSH|^~\\&|LIS\rOBX|1\r\x1c\r", False),
        ("Номер;Результат\r\n".encode("cp1251"), False),
        ("Номер;Результат\r\n".encode("utf-16"), False),
        ("MSH|^~\\&|LIS\rOBX|1\r".encode("utf-16-le"), False),
        (bytes(range(256)), True),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(40, 120)), True),
    ],
)
def test_noise_is_no_text(raw: bytes | None, *, expected: bool) -> None:
    assert is_noise(raw) is expected
