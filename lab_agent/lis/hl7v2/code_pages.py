"""Code pages by their names in MSH-18 (HL7 table 0211), and by those that systems write instead."""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence

_CODECS_BY_HL7_NAME = {
    "UNICODE UTF-8": "utf-8",
    "UNICODE": "utf-8",
    "UTF-8": "utf-8",
    "UTF8": "utf-8",
    "ASCII": "ascii",
    "ISO IR6": "ascii",
    "ISO IR14": "shift_jis",
    "KS X 1001": "euc_kr",
    "GB 18030-2000": "gb18030",
    "BIG-5": "big5",
    "ISO IR100": "iso8859-1",
    "ISO IR101": "iso8859-2",
    "ISO IR109": "iso8859-3",
    "ISO IR110": "iso8859-4",
    "ISO IR144": "iso8859-5",
    "ISO IR127": "iso8859-6",
    "ISO IR126": "iso8859-7",
    "ISO IR138": "iso8859-8",
    "ISO IR148": "iso8859-9",
}
_WINDOWS_PAGES = {"iso8859-1": "cp1252", "iso8859-9": "cp1254"}
"""The Windows page of the same letters that systems name so: they write its dashes and quotes where ISO 8859 has no text."""
_NO_TEXT_IN_ISO_8859 = re.compile(rb"[\x80-\x9f]")
ISO_2022_JP = "iso2022_jp_ext"
_JAPANESE_SETS = frozenset({"ISO IR14", "ISO IR87", "ISO IR159"})
"""JIS X 0201, 0208 and 0212, as repetitions of MSH-18 name them."""
_JIS_ROMAN, _ASCII = b"\x1b(J", b"\x1b(B"
"""Two bytes are other characters in the former, and they are separators."""
_SWITCH = re.compile(rb"\x1b[$()*+./-]")
_MULTIBYTE_RUN = re.compile(rb"\x1b\$[^\x1b\r\n]*")
_ISO_8859 = re.compile(r"(?:ISO[ _-]?)?8859[/-](\d{1,2})\Z")
_WINDOWS_CODE_PAGE = re.compile(r"(?:CP|WINDOWS|WIN)[ -]?(\d{3,4})\Z")
_SUPPORTED_CODECS = re.compile(r"(?:iso8859-|cp125|koi8-|cp866|utf-8\Z|ascii\Z|gb18030\Z)")
_MULTIBYTE_CODEC = re.compile(r"utf-8|gb18030")


class UnknownCharsetError(ValueError):
    """A code page that is unknown, that the bytes are not in, or whose bytes could be confused with framing bytes."""

    def __init__(self, what: str = "the code page in MSH-18 is unknown") -> None:
        super().__init__(what)


def codec_name(name: str) -> str:
    """The codec for a name in MSH-18 or in the settings. Raises `UnknownCharsetError`."""
    wanted = name.strip().upper()
    if found := _ISO_8859.match(wanted):
        guess = f"iso8859-{found[1]}"
    elif found := _WINDOWS_CODE_PAGE.match(wanted):
        guess = f"cp{found[1]}"
    else:
        guess = _CODECS_BY_HL7_NAME.get(wanted, wanted)
    try:
        found_name = codecs.lookup(guess).name
    except (LookupError, ValueError) as exc:
        raise UnknownCharsetError from exc
    if not _SUPPORTED_CODECS.match(found_name):
        raise UnknownCharsetError
    return found_name


def without_switched_text(data: bytes) -> bytes:
    """The bytes without what stands in a multi-byte set of ISO 2022, whose bytes may be those of separators."""
    return _MULTIBYTE_RUN.sub(b"", data)


def find_codec(names: Sequence[str], data: bytes, default: str) -> str:
    """The codec of a message: that which MSH-18 names (`names` are its repetitions), or `default`.

    Many name ASCII by default and send letters beyond it: then `default` says what they are. Switches of ISO 2022 are read
    where MSH-18 names the Japanese sets. Raises `UnknownCharsetError`.
    """
    is_switched = _SWITCH.search(data) is not None
    if not _JAPANESE_SETS.isdisjoint(name.upper() for name in names) and (is_switched or data.isascii()):
        return ISO_2022_JP
    if is_switched:
        raise UnknownCharsetError(
            "the message switches character sets (ISO 2022), and MSH-18 does not name them, as in ~ISO IR87"
        )
    found = default if is_open_charset(names) and not data.isascii() else codec_name(names[0] if names and names[0] else default)
    if not _MULTIBYTE_CODEC.match(found) and _is_utf_8(data):
        raise UnknownCharsetError(f"the message is in UTF-8, and MSH-18 or the settings say {found}")
    return found


def _is_utf_8(data: bytes) -> bool:
    """Whether there are letters beyond ASCII, and all of them are well-formed UTF-8, as those of another page hardly ever are."""
    try:
        return not data.isascii() and bool(data.decode("utf-8"))
    except UnicodeDecodeError:
        return False


def is_open_charset(names: Sequence[str]) -> bool:
    """Whether the repetitions of MSH-18 leave the code page of letters beyond ASCII open. Raises `UnknownCharsetError`."""
    return not names or not names[0] or codec_name(names[0]) == "ascii"


def decode_text(data: bytes, encoding: str) -> str:
    """Decode bytes; 0x80 to 0x9F of ISO 8859-1 and 8859-9 as browsers do. Raises `UnicodeDecodeError`.

    Such bytes in another page of ISO 8859 are those of a Windows page with other letters: nothing of it would be read right.
    """
    found = _NO_TEXT_IN_ISO_8859.search(data) if encoding.startswith("iso8859-") else None
    if found and encoding not in _WINDOWS_PAGES:
        raise UnicodeDecodeError(encoding, data, found.start(), found.end(), "a control character")
    if encoding == ISO_2022_JP:
        data = data.replace(_JIS_ROMAN, _ASCII)
    return data.decode(_WINDOWS_PAGES[encoding] if found else encoding)


def encode_text(text: str, encoding: str) -> bytes:
    """Encode what `decode_text` gave. Raises `UnicodeEncodeError`."""
    try:
        return text.encode(encoding)
    except UnicodeEncodeError:
        return text.encode(_WINDOWS_PAGES.get(encoding, encoding))


def hl7_charset_name(encoding: str) -> str:
    """The name of a codec in MSH-18."""
    if encoding == "utf-8":
        return "UNICODE UTF-8"
    if encoding == ISO_2022_JP:
        return "~ISO IR87"
    if encoding.startswith("iso8859-"):
        return "8859/" + encoding.removeprefix("iso8859-")
    return encoding.upper()
