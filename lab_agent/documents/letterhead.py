"""What stands at the head of a printed report: the laboratory's name, its logo, the font of it all; and what is wrong with them.

Whoever wants reports printed hears of a logo that is none from `lab-agent check`, and not from the first report.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path

from reportlab.lib.utils import ImageReader
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont

from lab_agent.documents.check import detect_media_type
from lab_agent.errors import Problem, SettingsError

_DEJAVU_FONT = Path("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf")
_FALLBACK_FONT = "Vera.ttf"
_LOGO_MEDIA_TYPES = frozenset({"image/png", "image/jpeg"})
_MAX_LETTERHEAD_LENGTH, _MAX_LETTERHEAD_LINES = 1000, 20
_MISSING_LETTERS_HINT = "take the letters out, or name a .ttf file in results.print_font that has them"


@dataclass(frozen=True, slots=True, kw_only=True)
class Letterhead:
    """The laboratory's name, line by line, a picture, and the font of the whole page."""

    name: str = ""
    logo: Path | None = None
    font: Path | None = None


def letterhead_problems(letterhead: Letterhead) -> tuple[Problem, ...]:
    """What is wrong with a letterhead, each by the name of its setting; nothing where reports can be printed."""
    found = [*_collect_problems(lambda: load_font(letterhead.font)), *_collect_problems(lambda: load_logo(letterhead.logo))]
    if not found and not has_glyphs(load_font(letterhead.font), letterhead.name):
        found.append(Problem("results.print_name", "has letters that the font lacks", _MISSING_LETTERS_HINT))
    if len(letterhead.name) > _MAX_LETTERHEAD_LENGTH or len(letterhead.name.splitlines()) > _MAX_LETTERHEAD_LINES:
        what = f"has more than {_MAX_LETTERHEAD_LENGTH} characters or {_MAX_LETTERHEAD_LINES} lines"
        found.append(Problem("results.print_name", what, "shorten it, so that it has room at the head of a page"))
    return tuple(found)


def has_glyphs(font: TTFont, text: str) -> bool:
    """Whether the font has a form for every letter of a text."""
    return all(ord(sign) in font.face.charToGlyph for sign in text if not sign.isspace())


def load_font(path: Path | None) -> TTFont:
    """The font, registered; DejaVu Sans where none is named. Raises `SettingsError` for one that cannot be read."""
    try:
        return _register_font(path or (_DEJAVU_FONT if _DEJAVU_FONT.is_file() else None))
    except Exception as exc:  # a file that is no font breaks its reader in any way there is
        what = "is no TrueType font that can be read"
        raise SettingsError((Problem("results.print_font", what, "name a .ttf file, or leave it out"),)) from exc


def load_logo(path: Path | None) -> BytesIO | None:
    """The bytes of the logo; None where none is named. Raises `SettingsError` for one that cannot be read."""
    if path is None:
        return None
    try:
        content = path.read_bytes()
        if detect_media_type(content) in _LOGO_MEDIA_TYPES:
            ImageReader(BytesIO(content)).getRGBData()  # type: ignore[no-untyped-call]
            return BytesIO(content)
    except FileNotFoundError as exc:
        raise SettingsError((Problem("results.print_logo", "is not there", "put the file there, or leave it out"),)) from exc
    except Exception as exc:  # a picture that is cut off breaks its reader in any way there is
        raise _invalid_logo_error() from exc
    raise _invalid_logo_error()


def _invalid_logo_error() -> SettingsError:
    mend = "name a PNG or JPEG file, or leave it out"
    return SettingsError((Problem("results.print_logo", "is no picture that can be read", mend),))


def _collect_problems(read: Callable[[], object]) -> tuple[Problem, ...]:
    try:
        read()
    except SettingsError as exc:
        return exc.problems
    return ()


@lru_cache(maxsize=4)
def _register_font(path: Path | None) -> TTFont:
    """Register a font once; what registers twice under one name would be the first all the same."""
    font = TTFont(f"report-{path.stem if path else 'plain'}", str(path) if path else _FALLBACK_FONT)
    pdfmetrics.registerFont(font)
    return font
