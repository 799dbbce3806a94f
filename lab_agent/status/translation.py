"""The language of a page: gettext catalogues beside the templates, and the language of the request that is being answered.

A text is written in English where it is shown, and looked up here. What is stored in words (a reason, an event, what a remote
system said) stays as it was written.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from gettext import GNUTranslations, NullTranslations
from pathlib import Path

from starlette.requests import Request

LANGUAGES = {"en": "English", "de": "Deutsch", "ru": "Русский"}
"""The languages of the pages, by their codes, each named in itself."""
LOCALES_FOLDER = Path(__file__).with_name("locales")
_LANGUAGE: ContextVar[str] = ContextVar("language", default="en")


def gettext(message: str) -> str:
    """The text in the language of this request."""
    return _translations(_LANGUAGE.get()).gettext(message) if message else ""


def ngettext(singular: str, plural: str, number: int) -> str:
    """The text for that number, in the language of this request."""
    return _translations(_LANGUAGE.get()).ngettext(singular, plural, number)


def marked(message: str) -> str:
    """Mark a text for the catalogues where it is not shown yet; `gettext` gives it in the language of a request later."""
    return message


def current_language() -> str:
    """The code of the language of this request."""
    return _LANGUAGE.get()


@contextmanager
def speaking(language: str) -> Iterator[None]:
    """Within the block, texts are in this language."""
    token = _LANGUAGE.set(language)
    try:
        yield
    finally:
        _LANGUAGE.reset(token)


def choose_language(request: Request, cookie: str | None, default: str) -> str:
    """The language that the user chose, else the first of the browser's that there is, else `default`."""
    if cookie in LANGUAGES:
        return str(cookie)
    asked = []
    for place, each in enumerate(request.headers.get("accept-language", "").split(",")[:20]):
        name, _, weight = each.partition(";q=")
        quality = float(weight) if weight.strip().replace(".", "", 1).isdigit() else 1.0
        asked.append((-quality, place, name.strip().lower()[:2]))
    return next((code for _, _, code in sorted(asked) if code in LANGUAGES), default)


@cache
def _translations(language: str) -> NullTranslations:
    """Read a language's catalogues (`*.po`), once."""
    files = sorted((LOCALES_FOLDER / language).glob("*.po"))
    if not files:
        return NullTranslations()
    from babel.messages.catalog import Catalog  # noqa: PLC0415 - only whoever reads another language than English needs it
    from babel.messages.mofile import write_mo  # noqa: PLC0415
    from babel.messages.pofile import read_po  # noqa: PLC0415

    whole = Catalog(locale=language)
    for file in files:
        with file.open("rb") as opened:
            for message in read_po(opened, locale=language):
                if message.id:
                    whole.add(message.id, message.string)
    compiled = io.BytesIO()
    write_mo(compiled, whole)
    compiled.seek(0)
    return GNUTranslations(compiled)
