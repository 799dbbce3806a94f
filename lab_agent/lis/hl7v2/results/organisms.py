"""What tells an organism from its susceptibilities in OBX, by what they say and by their numbers (OBX-4)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from lab_agent.lis.hl7v2.parser import Segment
from lab_agent.lis.hl7v2.results.obx_flags import AMBIGUOUS_SUSCEPTIBILITIES
from lab_agent.lis.hl7v2.results.segment_groups import ObxEntry, rewrite_field
from lab_agent.lis.susceptibility import SUSCEPTIBILITY_CODES, susceptibility_flags

_CODED_TYPES = frozenset({"CE", "CWE", "CNE", "CF"})
_NUMERIC_TYPES = frozenset({"NM", "SN"})
_CONCENTRATION = re.compile(r"(?:mc|[muµμn])?g/m?l\Z", re.IGNORECASE)
_NAMED_CONCENTRATION = re.compile(r"(?<![^\W_])(?:MIC|MHK|CMI|МПК|МИК)(?![^\W_])", re.IGNORECASE)
_ORGANISM_CODES = frozenset({"6463-4", "600-7", "634-6", "635-3", "11475-1", "41852-5", "580-1", "75756-7", "88461-2"})
"""LOINC codes under which organisms are reported; most laboratories have their own, which are told by their place."""
_SYNERGIES = {"SYN-S": "S", "SYN-R": "R"}
"""Synergy, and what it means of the drug: both may stand in one OBX."""
_WORDS = {display.casefold(): code for code, display in SUSCEPTIBILITY_CODES.items()} | {"sensitive": "S"}
_WORD = re.compile(
    r"(?:suscept|sensi[bt]|resist|résist|intermed|interméd|чувств|резист|устойч|промежут|умеренно)\w*\s*(?:[,(].*)?\Z",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"[<>=≤≥^]*\s*\d")
_ZONE_UNITS = frozenset({"", "mm"})
_ANSWER = re.compile(
    r"(?:pos|neg|posit\w+|negat\w+|полож\w*|отриц\w*|yes|no|not|none|nil|ja|nein|да|нет|не|(?:un)?detect\w+|present|absent"
    r"|indeterminate|equivocal|borderline)\b|[yn]\Z|[+-]",
    re.IGNORECASE,
)
_REACTIVE = re.compile(r"NR\Z|(?:non[ -]?|not |weakly )?rea[ck]tiv|реактив", re.IGNORECASE)
"""What serology says of its tests: beside it, `R` is reactive."""
_REACTIVE_FLAGS = frozenset({"RR", "WR"})
_LOINC = re.compile(r"\d+-\d\Z")
_RUNNING_SUFFIX = re.compile(r"[\s._-]*\d+\Z")
_MAX_NUMBER_LENGTH = 50
_SEPARATORS = frozenset(".-/_")


def flagged_susceptibilities(obx: Segment) -> frozenset[str]:
    """How susceptible an organism is by OBX-8 (HL7 table 0078)."""
    return frozenset(susceptibility_flags(value.component_text(1).strip().upper() for value in obx.repetitions(8)))


def stated_susceptibility(obx: Segment) -> str:
    """How susceptible an organism is by OBX-5: a code of table 0078, `?` for another word, empty for any other value."""
    values = obx.repetitions(5)
    if len(values) != 1 or is_numeric(obx) or is_known_organism(obx):
        return ""
    texts = [text for number in (1, 4, 2, 5) if (text := values[0].component_text(number).strip())]
    codes = [text.upper() for text in texts[:1] if text.upper() in SUSCEPTIBILITY_CODES]
    codes += [_WORDS.get(text.casefold(), "") for text in texts]
    return next(filter(None, codes), "") or ("?" if any(_WORD.match(text) for text in texts) else "")


def says_susceptibility(obx: Segment) -> bool:
    """Whether an OBX says how susceptible an organism is, if it is about an organism at all."""
    return bool(flagged_susceptibilities(obx) or stated_susceptibility(obx))


def find_contradiction(entries: Iterable[ObxEntry]) -> str | None:
    """Which OBX says two susceptibilities at once; None if none does."""
    for entry in entries:
        stated = _meanings(frozenset({stated_susceptibility(entry.obx)}) - {"", "?"})
        flagged = _meanings(flagged_susceptibilities(entry.obx))
        if len(flagged) > 1 or (flagged and stated and flagged != stated):
            return f"OBX {entry.number} says several susceptibilities, in OBX-8 or in OBX-5: have the laboratory system send one"
    return None


def _meanings(codes: Iterable[str]) -> frozenset[str]:
    return frozenset(_SYNERGIES.get(code, code) for code in codes)


def is_concentration(obx: Segment) -> bool:
    """Whether the value is the concentration of a drug: a laboratory need not say what every one of them means."""
    names = (obx.text(3, number) for number in (1, 2, 4, 5))
    return _CONCENTRATION.match(obx.text(6)) is not None or any(_NAMED_CONCENTRATION.search(name) for name in names)


def is_numeric(obx: Segment) -> bool:
    """Whether the value is a number, and so no organism."""
    return obx.text(2).upper() in _NUMERIC_TYPES


def is_coded(obx: Segment) -> bool:
    """Whether the value is a coded answer."""
    return obx.text(2).upper() in _CODED_TYPES


def is_known_organism(obx: Segment) -> bool:
    """Whether the code of an OBX asks for an organism."""
    return bool({obx.text(3), obx.text(3, 4)} & _ORGANISM_CODES)


def is_antibiogram(entries: Sequence[ObxEntry]) -> bool:
    """Whether there are susceptibilities among the OBX.

    The letters I, R and S alone are none: they count where an organism is named, beside a drug's value, or more than once.
    """
    organisms = find_organisms(entries)
    if any(is_known_organism(entry.obx) for entry in organisms):
        return any(says_susceptibility(entry.obx) or is_concentration(entry.obx) for entry in entries)
    if any(map(_is_serology, (entry.obx for entry in entries))):
        return any(flagged_susceptibilities(entry.obx) - AMBIGUOUS_SUSCEPTIBILITIES for entry in entries)
    if any(_is_evident(entry.obx) for entry in entries):
        return True
    possible = {entry.obx.text(3) for entry in entries if _is_possible(entry.obx)}
    measured = {entry.obx.text(3) for entry in entries if is_concentration(entry.obx)}
    if measured & {entry.obx.text(3) for entry in entries if stated_susceptibility(entry.obx)}:
        return True
    named = are_several(organisms) and any(is_coded(entry.obx) for entry in organisms)
    return len(possible) > 1 or bool(possible and named)


def has_organism(entries: Sequence[ObxEntry]) -> bool:
    """Whether `S`, `I` and `R` are susceptibilities here: beside an organism."""
    return is_antibiogram(entries) and bool(find_organisms(entries))


def _is_serology(obx: Segment) -> bool:
    flags = {value.component_text(1).strip().upper() for value in obx.repetitions(8)}
    return bool(flags & _REACTIVE_FLAGS) or any(_REACTIVE.match(obx.text(5, number)) for number in (1, 2))


def _is_evident(obx: Segment) -> bool:
    flags = flagged_susceptibilities(obx)
    is_of_drug = not obx.repetitions(5) or stated_susceptibility(obx) or is_concentration(obx)
    return bool(flags - AMBIGUOUS_SUSCEPTIBILITIES or (flags and is_of_drug))


def are_letters_alone(drugs: Sequence[ObxEntry]) -> bool:
    """Whether nothing but a letter that serology has, too, says that these are drugs: then a text is no organism beside them."""
    flags = frozenset[str]().union(*(flagged_susceptibilities(entry.obx) for entry in drugs))
    return bool(flags) and flags <= AMBIGUOUS_SUSCEPTIBILITIES and not any(_is_measured(entry.obx) for entry in drugs)


def _is_measured(obx: Segment) -> bool:
    return is_concentration(obx) or (is_numeric(obx) and obx.text(6).casefold() == "mm")


def _is_possible(obx: Segment) -> bool:
    """Whether an OBX may be of a drug: a bare number with a letter. One with a range is a signal beside its cutoff, as of HIV."""
    is_number = is_numeric(obx) or _NUMBER.match(obx.text(5)) is not None
    is_of_drug = is_number and obx.text(6).casefold() in _ZONE_UNITS and not obx.raw(7)
    return bool(stated_susceptibility(obx) or (flagged_susceptibilities(obx) and is_of_drug))


def join_interpretations(entries: Sequence[ObxEntry]) -> list[ObxEntry]:
    """Join two OBX of one drug and number: its concentration, and in OBX-5 of the other one what that means."""
    same: dict[tuple[str, str], list[ObxEntry]] = {}
    for entry in entries:
        same.setdefault((entry.obx.text(3), sub_id(entry.obx)), []).append(entry)
    joined: dict[int, ObxEntry | None] = {}
    for pair in same.values():
        meanings = [entry for entry in pair if stated_susceptibility(entry.obx) not in {"", "?"}]
        if len(pair) == 2 and len(meanings) == 1:
            value = next(entry for entry in pair if entry is not meanings[0])
            joined |= _join(value, meanings[0])
    return [one for entry in entries if (one := joined.get(entry.number, entry)) is not None]


def _join(value: ObxEntry, meaning: ObxEntry) -> dict[int, ObxEntry | None]:
    code = stated_susceptibility(meaning.obx)
    if not value.obx.repetitions(5) or value.obx.text(11) != meaning.obx.text(11):
        return {}
    if flagged_susceptibilities(value.obx) not in ({code}, set()):
        return {}
    flags = "~".join(filter(None, (value.obx.raw(8), "" if flagged_susceptibilities(value.obx) else code)))
    obx = rewrite_field(rewrite_field(value.obx, 8, flags), 7, value.obx.raw(7) or meaning.obx.raw(7))
    return {value.number: replace(value, obx=obx, notes=[*value.notes, *meaning.notes]), meaning.number: None}


def sub_id(obx: Segment) -> str:
    """The number of an OBX among those of its code or isolate: OBX-4 as a text, or group and sequence of an OG (HL7 2.8.2)."""
    return obx.text(4) or ".".join(part for part in (obx.text(4, 2), obx.text(4, 3)) if part)


def isolate_number(obx: Segment) -> str:
    """The number by which an OBX is joined with others: OBX-4, or the group of an OG."""
    return obx.text(4) or obx.text(4, 2)


class OrganismNumbers:
    """The numbers (OBX-4) of the organisms of a group or order."""

    def __init__(self, numbers: Iterable[str]) -> None:
        self._numbers = frozenset(numbers) - {""}
        self._by_trunk: dict[str, list[str]] = {}
        for number in self._numbers:
            self._by_trunk.setdefault(_trunk(number), []).append(number)

    def __contains__(self, number: str) -> bool:
        return number in self._numbers

    def find_owner(self, number: str) -> str:
        """Which of them a number belongs to: the longest that it is or begins with, such as `1.2` of `1.2.1`.

        Else the only one beside it, such as `1.1` of `1.2`; empty if there is none.
        """
        for end in range(min(len(number), _MAX_NUMBER_LENGTH), 0, -1):
            if number[:end] in self._numbers and _ends_at(number, end):
                return number[:end]
        beside = self._by_trunk.get(_trunk(number), ()) if _trunk(number) else ()
        return beside[0] if len(beside) == 1 else ""


def _ends_at(number: str, end: int) -> bool:
    """Whether a part of a number ends there: `1` of `1-1`, `A` of `A1`, but not `1` of `12`."""
    return end == len(number) or number[end] in _SEPARATORS or number[end - 1].isdigit() != number[end].isdigit()


def _trunk(number: str) -> str:
    return number.rpartition(".")[0]


def find_organisms(entries: Iterable[ObxEntry]) -> list[ObxEntry]:
    """Those of the OBX that may be organisms: by their LOINC code if any is one, else coded answers, else texts."""
    plain = [entry for entry in entries if _may_be_organism(entry.obx)]
    known = [entry for entry in plain if is_known_organism(entry.obx)]
    coded = [entry for entry in plain if is_coded(entry.obx)]
    return known or coded or plain


def _may_be_organism(obx: Segment) -> bool:
    if not obx.repetitions(5) or says_susceptibility(obx) or is_numeric(obx) or is_concentration(obx):
        return False
    if _is_plain_answer(obx):
        return False
    return is_coded(obx) or not _NUMBER.match(obx.text(5) or obx.text(5, 2))


def organism_code(obx: Segment) -> str:
    """The code by which organisms are asked for, without a number of its own: `ORG` for `ORG1` and `ORG2`."""
    code = obx.text(3)
    return code if _LOINC.match(code) else _RUNNING_SUFFIX.sub("", code) or code


def are_several(organisms: Sequence[ObxEntry]) -> bool:
    """Whether they are several answers to one question, and so several organisms."""
    codes = [organism_code(entry.obx) for entry in organisms]
    return len(set(codes)) < len(codes)


def stand_among_drugs(organisms: Sequence[ObxEntry], drugs: Collection[int]) -> bool:
    """Whether coded answers take turns with drugs: the drugs after each of them may be its own."""
    places = [entry.number for entry in organisms if is_coded(entry.obx) and not _is_plain_answer(entry.obx)]
    return len(list(_turns(sorted([*places, *drugs]), drugs))) > 1


def _turns(numbers: Sequence[int], drugs: Collection[int]) -> Iterator[int]:
    before_was_drug = True
    for number in numbers:
        is_drug = number in drugs
        if is_drug and not before_was_drug:
            yield number
        before_was_drug = is_drug


def _is_plain_answer(obx: Segment) -> bool:
    texts = (text for number in (1, 2) if (text := obx.text(5, number)))
    return any(_ANSWER.match(text) or _REACTIVE.match(text) for text in texts)
