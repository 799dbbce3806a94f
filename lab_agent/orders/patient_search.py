"""Finding one patient in what is stored, by name, birth date or an identifier, as a person gives them. Nothing is guessed."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from functools import cache

from lab_agent.shared.values import BirthDate, PartialDate

_WORDS = re.compile(r"[^\W_]+")
_SHORTEST_TERM = 6
"""A shorter number stands in too many messages to say whose they are."""


def words_of(text: str) -> frozenset[str]:
    """The words of a name or a text, without case and accents of writing (`ё` is `е`)."""
    return frozenset(_WORDS.findall(unicodedata.normalize("NFKC", text).casefold().replace("ё", "е")))


def plain_identifier(text: str) -> str:
    """Letters and digits alone: `112-233-445 95` is `11223344595`."""
    return "".join(char for char in unicodedata.normalize("NFKC", text).casefold() if char.isalnum())


def _word_term(word: str) -> str:
    return f"name {word}"


def _birth_term(day: str) -> str:
    return f"born {day}"


def _identifier_term(number: str) -> str:
    return f"number {number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownPatient:
    """What is stored of a patient: the words of each name, birth dates, and identifiers as letters and digits."""

    names: tuple[frozenset[str], ...] = ()
    birth_dates: frozenset[str] = frozenset()
    identifiers: frozenset[str] = frozenset()

    @property
    def search_terms(self) -> frozenset[str]:
        """What an index finds the patient by: each word of the names, each birth date, each identifier."""
        words = (_word_term(word) for name in self.names for word in name)
        return frozenset((*words, *map(_birth_term, self.birth_dates), *map(_identifier_term, self.identifiers)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PatientCriteria:
    """Who is meant: all that is given must be so. An identifier is enough alone, a name needs the birth date."""

    name: str = ""
    birth_date: BirthDate | None = None
    identifier: str = ""

    @property
    def is_enough(self) -> bool:
        """Whether it says who is meant."""
        return bool(plain_identifier(self.identifier)) or bool(words_of(self.name) and self.birth_date)

    @property
    def search_terms(self) -> frozenset[str]:
        """What an index is asked for: a patient who is meant has them all (`KnownPatient.search_terms`)."""
        found = {_word_term(word) for word in words_of(self.name)}
        return frozenset(found | ({_identifier_term(number)} if (number := plain_identifier(self.identifier)) else set()))

    @property
    def birth_terms(self) -> frozenset[str]:
        """What else an index is asked for: of some patients only the year is known, or the month; one of these is enough."""
        born = self.birth_date.isoformat() if self.birth_date else ""
        return frozenset(_birth_term(born[:length]) for length in (4, 7, 10) if length <= len(born))

    def matches(self, patient: KnownPatient) -> bool:
        """Whether this is the patient. All words of the name must be in one name of the patient."""
        named, identifier = words_of(self.name), plain_identifier(self.identifier)
        return (
            (not named or any(named <= name for name in patient.names))
            and (self.birth_date is None or self.birth_date.isoformat() in patient.birth_dates)
            and (not identifier or identifier in patient.identifiers)
        )

    def matches_text(self, text: str) -> bool:
        """Whether a message in any form names the patient."""
        found = words_of(text)
        identifier = plain_identifier(self.identifier)
        has_identifier = not identifier or identifier in found or self.identifier.casefold() in text.casefold()
        return words_of(self.name) <= found and has_identifier and (self.birth_date is None or _has_date(text, self.birth_date))


@dataclass(frozen=True, slots=True)
class MessageSearch:
    """What shows that a raw message is about the patient, or about one of the patient's orders (their keys and numbers)."""

    criteria: PatientCriteria | None
    terms: frozenset[str] = field(default=frozenset())

    def is_about(self, raw: bytes, encoding: str | None = None) -> bool:
        """Whether it is; read in the code page of its sender, and in those that are common."""
        return any(self._is_about(raw.decode(each, "replace")) for each in _encodings(encoding))

    def _is_about(self, text: str) -> bool:
        named = self.criteria is not None and self.criteria.matches_text(text)
        return named or (bool(self.terms) and _pattern(self.terms).search(text) is not None)


def search_terms(names: list[str | None]) -> frozenset[str]:
    """Those of an order's keys and numbers that are long enough to be searched for."""
    return frozenset(name for name in names if name and len(name) >= _SHORTEST_TERM)


@cache
def _pattern(terms: frozenset[str]) -> re.Pattern[str]:
    return re.compile(rf"(?<![0-9A-Za-z])(?:{'|'.join(re.escape(term) for term in sorted(terms))})(?![0-9A-Za-z])")


def _encodings(own: str | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*((own,) if own else ()), "utf-8", "cp1251", "cp866", "latin-1")))


def _has_date(text: str, day: BirthDate) -> bool:
    if isinstance(day, PartialDate):
        return re.search(rf"(?<!\d)(?:{day.text}|{day.text.replace('-', '')})(?!\d)", text) is not None
    return any(form in text for form in (f"{day:%Y%m%d}", f"{day:%Y-%m-%d}", f"{day:%d.%m.%Y}", f"{day:%d/%m/%Y}"))
