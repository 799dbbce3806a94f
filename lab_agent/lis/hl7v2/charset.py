"""Code pages: which one a message is in (MSH-18, or what was agreed), and how MSH-18 names ours."""

from __future__ import annotations

import codecs
import re

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
}
_ISO_8859 = re.compile(r"(?:ISO[ -]?)?8859[/-](\d{1,2})\Z")
_WINDOWS_CODE_PAGE = re.compile(r"(?:CP|WINDOWS|WIN)[ -]?(\d{3,4})\Z")
_SUPPORTED_CODECS = re.compile(r"(?:iso8859-|cp125|koi8-|cp866|utf-8\Z|ascii\Z|gb18030\Z)")


class UnknownCharsetError(ValueError):
    """A code page that is not known here, or that cannot be told from the framing bytes."""


def codec_name(name: str) -> str:
    """Find the codec for a name as it stands in MSH-18 or in the settings. Raises `UnknownCharsetError`."""
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
        raise UnknownCharsetError(name) from exc
    if not _SUPPORTED_CODECS.match(found_name):
        raise UnknownCharsetError(name)
    return found_name


def hl7_charset_name(encoding: str) -> str:
    """Name a codec as MSH-18 does."""
    if encoding == "utf-8":
        return "UNICODE UTF-8"
    if encoding.startswith("iso8859-"):
        return "8859/" + encoding.removeprefix("iso8859-")
    return encoding.upper()


def declared_charset(data: bytes) -> str:
    """Read MSH-18 of a message of which only the separators are known; empty if it says nothing."""
    header = re.split(rb"[\r\n]", data, maxsplit=1)[0]
    separator = header[3:4]
    fields = header.split(separator) if separator else []
    field = fields[17] if len(fields) > 17 else b""
    repetition = header[5:6]
    first = field.split(repetition)[0] if repetition else field
    return first.decode("ascii", "replace").strip()
