"""Code pages by their names in MSH-18 (HL7 table 0211), and by those that systems write instead."""

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
_ISO_8859 = re.compile(r"(?:ISO[ _-]?)?8859[/-](\d{1,2})\Z")
_WINDOWS_CODE_PAGE = re.compile(r"(?:CP|WINDOWS|WIN)[ -]?(\d{3,4})\Z")
_SUPPORTED_CODECS = re.compile(r"(?:iso8859-|cp125|koi8-|cp866|utf-8\Z|ascii\Z|gb18030\Z)")


class UnknownCharsetError(ValueError):
    """A code page that is unknown, or whose bytes could be confused with framing bytes."""


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
        raise UnknownCharsetError(name) from exc
    if not _SUPPORTED_CODECS.match(found_name):
        raise UnknownCharsetError(name)
    return found_name


def hl7_charset_name(encoding: str) -> str:
    """The name of a codec in MSH-18."""
    if encoding == "utf-8":
        return "UNICODE UTF-8"
    if encoding.startswith("iso8859-"):
        return "8859/" + encoding.removeprefix("iso8859-")
    return encoding.upper()
