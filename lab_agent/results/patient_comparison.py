"""Whether the patient that a laboratory system names with a result may be the order's patient. Pure.

Only what both sides say is compared: too little is no difference, since most laboratory systems return less than they were
given. An identifier means something within its system alone, and only where the order has one of that system: any other one is
the laboratory system's own number. One without a system is the same, whether it is ours or not.

Few things differ as often in writing as a name, so two names differ only if nothing of the family name, or nothing of the given
names, is found again. Initials, titles and the small words of a name (`van`, `de`) never decide; names in different scripts are
not compared.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from itertools import combinations
from os.path import commonprefix

from lab_agent.lis.lab_messages import ReportedPatient
from lab_agent.lis.lab_order import OrderPatient, PatientName
from lab_agent.shared.values import Identifier, may_be_same_day

_MAX_LENGTH, _MAX_WORDS = 500, 12
"""Characters and words that are read of a part: no name has more."""
_FAMILY_AND_GIVEN = 2
_SHORTEST_FAMILY = 2
_SHORTEST_GIVEN = 3
"""A shorter given name may be an abbreviation (`Th.`); of a family name (`Li`), only an initial is."""
_SHORTEST_TRUNCATED = 3
_SHORTEST_MISTYPED = 5

_DASH = "-\u2010-\u2015\u2212"
_CHUNK = re.compile(rf"[^\W\d_]+(?:\s*[{_DASH}]\s*[^\W\d_]+)*")
_WORD = re.compile(r"[^\W\d_]+")
_APOSTROPHES = dict.fromkeys(map(ord, "'’‘`´ʼʻʹʽ′＇"))
_LETTERS = str.maketrans("øłđðħıəәқғңөұүһіє", "olddhieакгноуухие") | str.maketrans({"æ": "ae", "œ": "oe", "þ": "th"})
"""Letters that Unicode does not take apart."""
_SAME_SOUND = str.maketrans("cjqwy", "kikvi") | str.maketrans({"x": "ks"})
_SILENT = re.compile(r"(?<=[aou])e|(?<=.)h|(.)(?=\1)")
"""What one writes and another leaves out: the `e` of an umlaut, an `h` that is not the first letter, one of two equal letters."""
_PATRONYMIC = re.compile(r".{2}(?:ич|вна|чна|оглы|кызы|vit?ch|witsch|[vw]na|ichna|ogl[iy]|k[iy]z[iy])\Z")
"""Brothers and sisters have it in common; so it is no given name that two names share."""

_PARTICLES = """
    van von vom der den dem de del della dello delle dei degli di da dal dalla do dos das du des la las le les lo los el al ul
    bin bint ben ibn abu abd zu zum zur ten ter te tot af av und saint sainte san santa santo sao st ste mac mc fitz
    ван фон дер де да ди дель ла ле аль эль бин бен ибн абу оглы кызы
"""
_TITLES = """
    dr med dent vet prof dipl ing mag msc bsc phd md do esq hon rev sir mr mrs ms miss mme mlle dott dra sr sra srta
    herr frau fr hr jr jun sen ii iii iv geb geborene nee
    др проф мл ст господин госпожа
"""
_SMALL_WORDS = frozenset(f"{_PARTICLES} {_TITLES}".split())
"""One of them in both names says nothing, where other words stand beside it."""


def names_differ(reported: PatientName, ordered: Iterable[PatientName]) -> bool:
    """Tell whether the reported name is none of those that the order gives its patient; too little said is no difference.

    A name in one piece stands in `family`. Several given names may be one text.
    """
    order = _OrderNames.of(ordered)
    family = _read((reported.family,))
    given = _read(reported.given, initials=True)
    if not given.words and family.chunks > 1:
        return _undivided_differ(family, order.family | order.given)
    straight = not family.contradicts(order.family, _SHORTEST_FAMILY) and not given.contradicts(order.given, _SHORTEST_GIVEN)
    swapped = family.shares(order.given) and not given.contradicts(order.family, _SHORTEST_GIVEN)
    return not (straight or swapped)


@dataclass(frozen=True, slots=True)
class _Words:
    """The words of one or more names: `small` ones count only as they stand, `runs` are neighbours written as one word."""

    words: frozenset[str] = frozenset()
    small: frozenset[str] = frozenset()
    runs: frozenset[str] = frozenset()
    chunks: int = 0

    def __or__(self, other: _Words) -> _Words:
        return _Words(self.words | other.words, self.small | other.small, self.runs | other.runs)

    def contradicts(self, other: _Words, shortest: int) -> bool:
        """Whether both say a word in full, in one script, and none in common."""
        return _can_be_compared(self.full(shortest), other.full(shortest)) and not self.shares(other)

    def full(self, shortest: int) -> frozenset[str]:
        """The words that are no abbreviation. Without upper and lower case, as in Chinese, one character is a word."""
        return frozenset(word for word in self.words if len(word) >= shortest or word == word.upper())

    def shares(self, other: _Words) -> bool:
        """Whether a word may be the same in both."""
        return any(other.has(word) for word in self.words) or any(self.has(word) for word in other.words)

    def has(self, word: str) -> bool:
        """Whether a word may be one of these."""
        return (
            word in self.small
            or any(_may_be_same(word, each) for each in self.words)
            or any(_is_spelled_alike(word, each) for each in self.runs)
        )


@dataclass(frozen=True, slots=True)
class _OrderNames:
    """All that an order calls its patient. A name of which nothing says what is the family name counts as both."""

    family: _Words
    given: _Words

    @classmethod
    def of(cls, names: Iterable[PatientName]) -> _OrderNames:
        """Collect them."""
        family = given = _Words()
        for name in names:
            own, others = _read((name.family or name.text,)), _read(name.given, initials=True)
            family |= own
            given |= own if not others.words and own.chunks > 1 else others
            family |= _further_words(name, own | others)
        return cls(family, given)


def _further_words(name: PatientName, known: _Words) -> _Words:
    """What the text of a name says beside its parts, such as the name at birth."""
    further = _read((name.text,))
    return _Words(further.words - known.words - known.small)


def _undivided_differ(name: _Words, order: _Words) -> bool:
    """Whether a name in one piece is another one: next to nothing is found again, and both have more to say."""
    found = [word for word in name.full(_SHORTEST_FAMILY) if order.has(word)]
    rest = frozenset(word for word in name.full(_SHORTEST_GIVEN) if not order.has(word))
    missing = frozenset(word for word in order.full(_SHORTEST_GIVEN) if not name.has(word))
    return len(found) < _FAMILY_AND_GIVEN and _can_be_compared(rest, missing)


def _read(texts: Iterable[str | None], *, initials: bool = False) -> _Words:
    """The words of a part of a name; `initials` count beside other words, as they do among given names."""
    chunks = [_WORD.findall(chunk) for text in texts for chunk in _CHUNK.findall(_fold(text or ""))]
    said = [word for chunk in chunks for word in chunk][:_MAX_WORDS]
    has_patronymic = initials or len(said) > _FAMILY_AND_GIVEN
    small = {word for word in said if word in _SMALL_WORDS or (has_patronymic and _PATRONYMIC.search(word))}
    names = {word for word in said if word not in small and (initials or len(word) > 1 or word == word.upper())}
    if not names:
        names, small = set(said), set()
    neighbours = (said[start:end] for start, end in combinations(range(len(said) + 1), 2))
    runs = frozenset("".join(words) for words in neighbours if names & set(words))
    return _Words(frozenset(names), frozenset(small), runs, sum(bool(names & set(chunk)) for chunk in chunks))


def _fold(text: str) -> str:
    """The letters without case, accents (`ё` is `е`) and apostrophes."""
    plain = unicodedata.normalize("NFKD", text[:_MAX_LENGTH].translate(_APOSTROPHES).casefold())
    kept = "".join(char for char in plain if not unicodedata.category(char).startswith("M"))
    return unicodedata.normalize("NFC", kept).translate(_LETTERS)


def _can_be_compared(some: Iterable[str], others: Iterable[str]) -> bool:
    return bool({script for word in some if (script := _script(word))} & set(map(_script, others)))


def _script(word: str) -> str | None:
    """The script of a word; None for a mixture, as of Latin and Cyrillic letters that look alike."""
    scripts = {unicodedata.name(char, "").partition(" ")[0] for char in word}
    return scripts.pop() if len(scripts) == 1 else None


def _may_be_same(one: str, other: str) -> bool:
    """Whether two words are the same, or one is an initial of the other, or cut off, or has one typing error."""
    return _is_spelled_alike(one, other) or any(_begins(a, b) or _begins(b, a) for a, b in _spellings(one, other))


def _begins(short: str, long: str) -> bool:
    return long.startswith(short) and (len(short) == 1 or len(short) >= _SHORTEST_TRUNCATED)


def _is_spelled_alike(one: str, other: str) -> bool:
    return any(a == b or _is_typing_error(a, b) for a, b in _spellings(one, other))


def _spellings(one: str, other: str) -> Iterator[tuple[str, str]]:
    yield one, other
    yield _plain_spelling(one), _plain_spelling(other)


def _plain_spelling(word: str) -> str:
    """What Latin letters have in common that are written for one sound: `Erik` and `Eric`, `Müller` and `Mueller`."""
    return _SILENT.sub("", word.replace("ph", "f").translate(_SAME_SOUND))


def _is_typing_error(one: str, other: str) -> bool:
    """Whether one letter of a longer word is wrong, missing or too many, or two neighbours have changed places."""
    if min(len(one), len(other)) < _SHORTEST_MISTYPED:
        return False
    start = len(commonprefix((one, other)))  # noqa: RUF071 — letter by letter, as is wanted of words
    rest, others = one[start:], other[start:]
    swapped = rest[:2] == others[1::-1] and rest[2:] == others[2:]
    return rest[1:] in {others[1:], others} or rest == others[1:] or swapped


_COMPARED_GENDERS = frozenset({"male", "female"})
"""What says something of a person: `other` and `unknown` are written for many reasons, and never contradict."""


class PatientField(StrEnum):
    """What may differ, in the words in which people read it."""

    NAME = "name"
    BIRTH_DATE = "birth date"
    SEX = "sex"
    IDENTIFIER = "identifier"


def find_differences(
    reported: ReportedPatient, ordered: OrderPatient, unknown_birth_dates: Collection[date] = ()
) -> tuple[PatientField, ...]:
    """What both sides say and say differently.

    An anonymous patient has a real birth date and sex (interface: Patient); name and numbers are nobody's, and are not compared.
    `unknown_birth_dates` are those that people and programs write where none is known: they say nothing.
    """
    one, other = (None if each in unknown_birth_dates else each for each in (reported.birth_date, ordered.birth_date))
    differs = {
        PatientField.NAME: not ordered.anonymous
        and names_differ(PatientName(family=reported.family, given=reported.given), _names_of(ordered)),
        PatientField.BIRTH_DATE: one is not None and other is not None and not may_be_same_day(one, other),
        PatientField.SEX: _genders_differ(reported.gender, ordered.gender),
        PatientField.IDENTIFIER: not ordered.anonymous and _identifiers_differ(reported.identifiers, _identifiers_of(ordered)),
    }
    return tuple(field for field, is_different in differs.items() if is_different)


def may_be_one_person(one: OrderPatient | None, other: OrderPatient | None) -> bool:
    """Whether the patients of two orders may be one person: nothing that both say differs. One who is not known may be anybody.

    Ids and numbers are not compared: a partner may give each order new ones.
    """
    if one is None or other is None:
        return False
    if (one.anonymous or other.anonymous) and one.family != other.family:
        return False
    said = ReportedPatient(family=one.family, given=one.given, birth_date=one.birth_date, gender=one.gender)
    return not find_differences(said, other)


def _genders_differ(one: str | None, other: str | None) -> bool:
    return one != other and one in _COMPARED_GENDERS and other in _COMPARED_GENDERS


def _names_of(patient: OrderPatient) -> tuple[PatientName, ...]:
    return (PatientName(family=patient.family, given=patient.given, text=patient.name_text), *patient.other_names)


def _identifiers_of(patient: OrderPatient) -> list[Identifier]:
    own = (patient.global_identifier, patient.service_identifier)
    return [*(each for each in own if each is not None), *patient.identifiers]


def _identifiers_differ(reported: Iterable[Identifier], ordered: Iterable[Identifier]) -> bool:
    """Whether there is a system in which both sides name something, and nothing that both name."""
    known, named = _values_by_system(ordered), _values_by_system(reported)
    return any(not known[system] & values for system, values in named.items() if system in known)


def _values_by_system(identifiers: Iterable[Identifier]) -> dict[str, set[str]]:
    values: dict[str, set[str]] = {}
    for each in identifiers:
        if (system := (each.system or "").strip().rstrip("/").casefold()) and (value := _comparison_key(each.value)):
            values.setdefault(system, set()).add(value)
    return values


def _comparison_key(value: str) -> str:
    """Letters and digits alone: `112-233-445 95` is `11223344595`. Zeros before a number are how wide a system writes it."""
    plain = "".join(char for char in unicodedata.normalize("NFKC", value).casefold() if char.isalnum())
    return plain.lstrip("0") or "0" if plain.isdecimal() else plain
