"""Invalid JSON gives one error, whatever is wrong with it; digits are preserved."""

from __future__ import annotations

import pytest

from lab_sandbox.partner.errors import InvalidJsonError, decode, encode


@pytest.mark.parametrize("data", [b"", b"<html>", b"\xff", b'{"a": NaN}', b'{"a": 1e99999999999999999999}', b"[" * 100_000])
def test_invalid_json_reported(data: bytes):
    with pytest.raises(InvalidJsonError):
        decode(data)


def test_decimal_digits_preserved():
    assert encode(decode(b'{"a":1.20,"b":2}')) == b'{"a":1.20,"b":2}'
