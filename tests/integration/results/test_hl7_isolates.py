"""A culture with isolates, from the adapter's port to the clinic: which susceptibilities belong to which organism."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from lab_sandbox.partner.errors import Json
from lab_sandbox.partner.result_reader import ReceivedReport
from tests.harness.hl7_results import Hl7Results, observation_code, results_over_mllp
from tests.harness.results import ResultsBench

ORGANISM, AMPICILLIN, CIPROFLOXACIN, COUNT = "6463-4", "18864-9", "18906-8", "564-5"
CULTURE, SECOND_LINE = "001.001", "004.001"
TIMES = "|||20260303080000+0000|||||||||||||||20260303093000+0000|||"
ECOLI, STAPH = "112283007^Escherichia coli^SCT", "3092008^Staphylococcus aureus^SCT"


@pytest.fixture
async def results(bench: ResultsBench, tmp_path: Path) -> AsyncIterator[Hl7Results]:
    async with results_over_mllp(bench, tmp_path) as opened:
        yield opened


def obr(number: int, item: str = CULTURE, *, status: str = "F", filler: str = "A-1", parent: str = "", order: str = "") -> str:
    return f"OBR|{number}||{filler}|{item}{TIMES}{status}|{parent}|||{order}"


def organism(number: str, name: str, status: str = "F") -> str:
    return f"OBX|1|CWE|{ORGANISM}^Bacteria identified^LN|{number}|{name}||||||{status}"


def drug(number: str, code: str, value: str, flag: str, status: str = "F") -> str:
    return f"OBX|1|ST|{code}^drug^LN|{number}|{value}|ug/mL||{flag}|||{status}"


def names(report: ReceivedReport) -> list[str]:
    return [shown(one) for one in report.observations]


def shown(one: Json) -> str:
    concept = one.get("valueCodeableConcept", {})
    quantity = one.get("valueQuantity", {})
    flags = "".join(each["code"] for each in one.get("interpretation", {}).get("coding", ()))
    value: Any = concept.get("text") or one.get("valueString") or f"{quantity.get('comparator', '')}{quantity.get('value')}"
    return " ".join(filter(None, (observation_code(one), str(value), flags)))


async def antibiograms(results: Hl7Results) -> list[list[str]]:
    """What the clinic reads of each report that has a susceptibility."""
    reports = await results.bench.clinic_reports()
    with_drugs = [report for report in reports if any(observation_code(one) == AMPICILLIN for one in report.observations)]
    return sorted(map(names, with_drugs))


TWO_ISOLATES = [
    [f"{ORGANISM} Escherichia coli", f"{AMPICILLIN} 32 R", f"{CIPROFLOXACIN} <0.25 S"],
    [f"{ORGANISM} Staphylococcus aureus", f"{AMPICILLIN} 2 S", f"{CIPROFLOXACIN} 4 R"],
]
CULTURE_GROUP = (obr(1), organism("1", ECOLI), organism("2", STAPH))
FIRST = (drug("", AMPICILLIN, "32", "R"), drug("", CIPROFLOXACIN, "<0.25", "S"))
SECOND = (drug("", AMPICILLIN, "2", "S"), drug("", CIPROFLOXACIN, "4", "R"))


def numbered(drugs: tuple[str, ...], *numbers: str) -> tuple[str, ...]:
    return tuple(one.replace("^LN||", f"^LN|{number}|") for one, number in zip(drugs, numbers, strict=True))


def mic(number: str, code: str, value: str) -> str:
    return drug(number, code, value, "")


def sir(number: str, code: str, value: str) -> str:
    """An OBX that only says what the concentration of a drug means."""
    return f"OBX|1|CWE|{code}^drug^LN|{number}|{value}||||||F"


DIALECTS = {
    "parent result in OBR-26": (
        *CULTURE_GROUP,
        obr(2, "AST", parent=f"{ORGANISM}&Bacteria identified&LN^1^Escherichia coli"),
        *FIRST,
        obr(3, "AST", parent=f"{ORGANISM}&Bacteria identified&LN^2^Staphylococcus aureus"),
        *SECOND,
    ),
    "OBX-4 of the organism": (obr(1), organism("1", ECOLI), *numbered(FIRST, "1", "1"), organism("2", STAPH),
                              *numbered(SECOND, "2", "2")),
    "OBX-4 with a dot": (obr(1), organism("1", ECOLI), organism("2", STAPH), *numbered(FIRST, "1.1", "1.2"),
                         *numbered(SECOND, "2.1", "2.2")),
    "OBX-4 in OBRs of one code": (obr(1), organism("1", ECOLI), *numbered(FIRST, "1", "1"), obr(2), organism("2", STAPH),
                                  *numbered(SECOND, "2", "2")),
    "drugs of all isolates in an OBR": (*CULTURE_GROUP, obr(2, "AST"), *numbered(FIRST, "1", "1"), *numbered(SECOND, "2", "2")),
    "drugs in OBRs of one code": (*CULTURE_GROUP, obr(2, "AST"), *numbered(FIRST, "1", "1"), obr(3, "AST"),
                                  *numbered(SECOND, "2", "2")),
    "parent order in OBR-29, own organism": (
        obr(1, order="P1"), organism("", ECOLI), *FIRST, obr(2, order="P2"), organism("", STAPH), *SECOND),
    "parent result by name alone": (
        obr(1), "OBX|1|ST|600-7^Culture^LN||growth||||||F",
        obr(2, parent=f"{ORGANISM}&Bacteria identified&LN^^Escherichia coli"), *FIRST,
        obr(3, parent=f"{ORGANISM}&Bacteria identified&LN^^Staphylococcus aureus"), *SECOND),
    "susceptibilities in OBX-5 alone": (
        obr(1), organism("1", ECOLI), mic("1", AMPICILLIN, "32"), mic("1", CIPROFLOXACIN, "<0.25"), sir("1", AMPICILLIN, "R"),
        sir("1", CIPROFLOXACIN, "S^Susceptible"), organism("2", STAPH), mic("2", AMPICILLIN, "2"), mic("2", CIPROFLOXACIN, "4"),
        sir("2", AMPICILLIN, "S"), sir("2", CIPROFLOXACIN, "Resistant")),
    "organisms with dotted numbers": (obr(1), organism("1.1", ECOLI), organism("1.2", STAPH),
                                      *numbered(FIRST, "1.1.1", "1.1.2"), *numbered(SECOND, "1.2", "1.2")),
    "drugs before their organism": (obr(1), *numbered(FIRST, "1", "1"), organism("1", ECOLI), *numbered(SECOND, "2", "2"),
                                    organism("2", STAPH)),
    "letters and digits": (obr(1), organism("A", ECOLI), *numbered(FIRST, "A1", "A2"), organism("B", STAPH),
                           *numbered(SECOND, "B1", "B2")),
    "numbers with a dash": (obr(1), organism("1", ECOLI), *numbered(FIRST, "1-1", "1-2"), organism("2", STAPH),
                            *numbered(SECOND, "2-1", "2-2")),
}  # fmt: skip


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_isolates_reach_clinic_as_one_report_each(results: Hl7Results, dialect: str) -> None:
    """The organism first, then its susceptibilities; without a switch for S, I and R."""
    answer = await results.send(*DIALECTS[dialect])
    assert answer == "AA"
    assert await antibiograms(results) == TWO_ISOLATES
    assert (await results.bench.line_states())[0] == "completed"


async def test_isolates_keep_identity_from_preliminary_to_final(results: Hl7Results) -> None:
    """An organism gets its name and a second isolate comes: no report and no Observation is written twice."""
    rods = "87172008^Gram-negative rods^SCT"
    await results.send(obr(1, status="P"), organism("1", rods, "P"))
    await results.send(obr(1, status="P"), organism("1", rods, "P"), *numbered(FIRST, "1", "1"))
    await results.send(*DIALECTS["OBX-4 of the organism"])
    assert await antibiograms(results) == TWO_ISOLATES
    reports = await results.bench.clinic_reports()
    assert (len(reports), {report.status for report in reports}) == (3, {"final"})
    stored = await results.bench.partner.search("Observation", {})
    assert len(stored) == sum(len(report.observations) for report in reports)
    assert not [one for one in stored if one["status"] != "final"]
    assert not results.bench.event_texts("result_held")


async def test_renamed_parent_result_stays_one_report(results: Hl7Results) -> None:
    for name, drugs in (("Gram-negative rods", FIRST[:1]), ("Escherichia coli", FIRST)):
        coded = f"1^{name}^99ORG"
        parent = f"{ORGANISM}&Bacteria identified&LN^1^{name}"
        assert await results.send(obr(1), organism("1", coded), obr(2, "AST", parent=parent), *drugs) == "AA"
    assert await antibiograms(results) == [TWO_ISOLATES[0]]


async def test_line_ends_when_all_isolates_are_final(results: Hl7Results) -> None:
    waiting = numbered(SECOND, "2", "2")[:1]
    isolates = (organism("1", ECOLI), *numbered(FIRST, "1", "1"), organism("2", STAPH))
    await results.send(obr(1), *isolates, *(one[:-1] + "P" for one in waiting))
    assert (await results.bench.line_states())[0] == "accepted"
    await results.send(obr(1), *isolates, *waiting)
    assert (await results.bench.line_states())[0] == "completed"


async def test_susceptibility_without_value_is_the_value(results: Hl7Results) -> None:
    assert await results.send(obr(1), organism("1", ECOLI), f"OBX|2|ST|{AMPICILLIN}^drug^LN|1||||r|||F") == "AA"
    [one] = await results.values(AMPICILLIN)
    [coding] = one["valueCodeableConcept"]["coding"]
    assert (coding["system"], coding["code"]) == ("http://hl7.org/fhir/v2/0078", "R")


async def test_changed_susceptibility_is_amended(results: Hl7Results) -> None:
    """The same concentration, read as resistant and then as susceptible, is another statement."""
    for flag in ("R", "S"):
        await results.send(obr(1), organism("1", ECOLI), drug("1", AMPICILLIN, "8", flag))
    [one] = await results.values(AMPICILLIN)
    assert (one["status"], shown(one)) == ("amended", f"{AMPICILLIN} 8 S")


async def test_parent_result_of_earlier_message_is_named(results: Hl7Results) -> None:
    """Susceptibilities that come alone say their organism as OBR-26 names it."""
    parent = f"{ORGANISM}&Bacteria identified&LN^1^Escherichia coli"
    assert await results.send(obr(1, parent=parent), *FIRST) == "AA"
    assert await antibiograms(results) == [TWO_ISOLATES[0]]


@pytest.mark.parametrize(
    ("segments", "why"),
    [
        ((obr(1), organism("1", ECOLI), organism("2", STAPH), *FIRST), "several organisms"),
        ((obr(1), organism("", ECOLI), organism("", STAPH)), f"the code {ORGANISM} stands in it more than once"),
        ((obr(1), organism("", ECOLI), *FIRST, obr(2), organism("", STAPH), *SECOND), "another organism"),
        ((obr(1), organism("1", ECOLI), obr(2), organism("1", STAPH)), "number them in OBX-4"),
        ((obr(1), *numbered(FIRST, "1", "1"), *numbered(SECOND, "2", "2")), "without their organism"),
        ((obr(1, parent=f"{ORGANISM}^1"), *FIRST), "without their organism"),
        (
            (
                obr(1),
                *(
                    organism("", ECOLI).replace(ORGANISM, "ORG1"),
                    FIRST[0],
                    organism("", STAPH).replace(ORGANISM, "ORG2"),
                    SECOND[1],
                ),
            ),
            "several organisms",
        ),
        ((obr(1), *FIRST), "without their organism"),
        ((obr(1), organism("1", ECOLI), organism("2", STAPH), obr(2, "AST"), *numbered(FIRST, "1", "2")), "has several"),
        ((obr(1), organism("1", ECOLI), drug("1", AMPICILLIN, "8", "S~R")), "OBX 2 says several susceptibilities"),
        ((obr(1), organism("1", ECOLI), drug("1", AMPICILLIN, "R", "S")), "OBX 2 says several susceptibilities"),
        ((*CULTURE_GROUP, obr(2, "AST", parent=f"{ORGANISM}^2"), organism("1", ECOLI), *FIRST), "another one in OBR-26"),
        ((*CULTURE_GROUP, obr(2, "AST", parent=f"{ORGANISM}^1^Staphylococcus aureus"), *FIRST), "by its number"),
        ((*CULTURE_GROUP, obr(2, "AST", parent=f"{ORGANISM}^1"), *numbered(FIRST, "2", "2")), "of another one than OBR-26"),
        ((obr(1), drug("", "718-7", "5.1", "H"), drug("", "718-7", "5.2", "H")), "OBX-4"),
    ],
)
async def test_result_that_may_be_another_isolates_is_refused(results: Hl7Results, segments: tuple[str, ...], why: str) -> None:
    answer = await results.send(*segments)
    assert answer.startswith("AE")
    assert why in answer
    assert await results.values(AMPICILLIN) == []


SHARED = "RAAAAAAAAAAAAAAA"
ANOTHERS_CULTURE = {
    "one order key, two fillers": (obr(1).replace("||A-1|", f"|{SHARED}|A-1|"), organism("1", ECOLI),
                                   obr(2, "AST", filler="A-2").replace("||A-2|", f"|{SHARED}|A-2|"), *numbered(FIRST, "1", "1")),
    "a placer that is another's filler": (obr(1, filler="1002").replace("||1002|", "|1001|1002|"), organism("1", ECOLI),
                                          obr(2, "AST", filler="1001"), *numbered(FIRST, "1", "1")),
    "one accession, two tubes": (obr(1), organism("", ECOLI), "SPM|1|T1", obr(2, "AST"), *FIRST, "SPM|2|T2"),
    "one accession, two kinds of specimen": (obr(1), organism("", ECOLI), "SPM|1|||UR", obr(2, "AST"), *FIRST, "SPM|2|||WND"),
    "a parent order that is not there": (obr(1), organism("", ECOLI), obr(2, "AST", order="^A-9"), *FIRST),
}  # fmt: skip


@pytest.mark.parametrize("case", ANOTHERS_CULTURE)
async def test_organism_of_another_culture_is_never_taken(results: Hl7Results, case: str) -> None:
    """A wound's susceptibilities are not those of the organism in the urine, though both have one number."""
    answer = await results.send(*ANOTHERS_CULTURE[case])
    assert answer.startswith("AE OBR 2: has susceptibilities without their organism")
    assert await results.values(AMPICILLIN) == []


async def test_culture_and_susceptibilities_of_one_tube_belong_together(results: Hl7Results) -> None:
    other = (obr(1, filler="A-2"), organism("1", STAPH), "SPM|1|T2")
    answer = await results.send(*other, obr(2), organism("1", ECOLI), "SPM|2|T1", obr(3, "AST"), *FIRST, "SPM|3|T1")
    assert answer == "AA"
    assert await antibiograms(results) == [TWO_ISOLATES[0]]


async def test_susceptibilities_counted_by_line_belong_to_the_only_organism(results: Hl7Results) -> None:
    drugs = numbered(FIRST, "1", "2")
    assert await results.send(obr(1), organism("1", ECOLI), obr(2, "AST"), *drugs) == "AA"
    assert await antibiograms(results) == [TWO_ISOLATES[0]]


async def test_reflex_test_is_about_its_own_line(results: Hl7Results) -> None:
    """OBR-26 of a reflex test names the result that caused it, which is neither repeated nor its order's line."""
    tsh = (obr(1), "OBX|1|ST|3016-3^TSH^LN||7.9|mU/L|||||F")
    ft4 = obr(2, SECOND_LINE, parent="3016-3&TSH&LN^^7.9", order="^A-1")
    assert await results.send(*tsh, ft4, "OBX|1|NM|3024-7^FT4^LN||12|pmol/L|||||F") == "AA"
    assert (await results.bench.line_states())[:2] == ["completed", "completed"]
    assert [len(await results.values(code)) for code in ("3016-3", "3024-7")] == [1, 1]


async def test_susceptibilities_ordered_as_a_line_complete_it(bench: ResultsBench, tmp_path: Path) -> None:
    async with results_over_mllp(bench, tmp_path, f'[tables.items]\nAST = "{SECOND_LINE}"\n') as results:
        assert await results.send(obr(1), organism("1", ECOLI), obr(2, "AST", parent=f"{ORGANISM}^1"), *FIRST) == "AA"
        assert (await results.bench.line_states())[:2] == ["completed", "completed"]
        assert await antibiograms(results) == [TWO_ISOLATES[0]]


async def test_letters_of_serology_are_no_susceptibilities(results: Hl7Results) -> None:
    """`R` is reactive and `I` indeterminate: no organism, no isolate, and one code may be numbered."""
    values = (
        f"OBX|1|CWE|{COUNT}^IgG^LN|{number}|{text}||||||F" for number, text in (("1", "POS^positive"), ("2", "NEG^negative"))
    )
    flagged = (f"OBX|1|ST|{AMPICILLIN}^IgM^LN||reactive|||{flag}|||F" for flag in "I")
    assert await results.send(obr(1), *values, *flagged) == "AA"
    assert len(await results.values(COUNT)) == 2
    assert len(await results.bench.clinic_reports()) == 1


async def test_lines_of_text_stay_one_observation(results: Hl7Results) -> None:
    first, second = (f"OBX|1|TX|{COUNT}^Growth^LN||{text}||||||F" for text in ("moderate", "growth"))
    assert await results.send(obr(1), first, second) == "AA"
    assert [one["valueString"] for one in await results.values(COUNT)] == ["moderate\ngrowth"]
