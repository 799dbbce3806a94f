"""Files encrypted whole, chunk by chunk: one that was cut off, or whose chunks were put in another order, is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from lab_agent.shared.errors import CryptoError
from lab_agent.store.crypto import Cipher
from lab_agent.store.progress import Target

_HEADER = b"lab-agent sealed file 1\n"
_CHUNK = 4_000_000
_MAX_SEALED = 2 * _CHUNK
_LENGTH = 4
_LAST, _MORE = b"\x01", b"\x00"
_DAMAGED = "The encrypted file {} was cut off or altered."


def is_sealed(path: Path) -> bool:
    """Whether a file was written by `seal`."""
    with path.open("rb") as file:
        return file.read(len(_HEADER)) == _HEADER


def seal(source: Path, target: Target, cipher: Cipher) -> None:
    """Write the content of `source` encrypted. Each chunk has its number, and whether it is the last one."""
    target.write(_HEADER)
    with source.open("rb") as file:
        content = file.read(_CHUNK)
        for number in range(2**63):
            following = file.read(_CHUNK)
            mark = _MORE if following else _LAST
            sealed = cipher.encrypt(mark + number.to_bytes(8, "big") + content)
            target.write(len(sealed).to_bytes(_LENGTH, "big") + sealed)
            if not following:
                return
            content = following


def unseal(source: Path, target: Target, cipher: Cipher) -> None:
    """Write what `seal` has encrypted as it was. Raises `CryptoError` where no key fits, or the file is not whole."""
    with source.open("rb") as file:
        if file.read(len(_HEADER)) != _HEADER:
            raise CryptoError(f"The file {source} is not one that lab-agent has encrypted.")
        is_last = False
        for number, chunk in enumerate(_chunks(file, source)):
            opened = cipher.decrypt(chunk)
            if is_last or opened[1:9] != number.to_bytes(8, "big"):
                raise CryptoError(_DAMAGED.format(source))
            is_last = opened[:1] == _LAST
            target.write(opened[9:])
        if not is_last:
            raise CryptoError(_DAMAGED.format(source))


def _chunks(file: BinaryIO, source: Path) -> Iterator[bytes]:
    while head := file.read(_LENGTH):
        length = int.from_bytes(head, "big")
        chunk = file.read(length) if len(head) == _LENGTH and length <= _MAX_SEALED else b""
        if len(chunk) < length or not chunk:
            raise CryptoError(_DAMAGED.format(source))
        yield chunk
