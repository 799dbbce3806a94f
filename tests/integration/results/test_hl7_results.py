"""HL7 v2 messages from the adapter's port to the clinic: values with their units and texts that can be read, and cultures.

Of a culture with isolates: which susceptibilities belong to which organism.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from lab_agent.workflow.result_inbox import StoreInbox
from lab_sandbox.partner.errors import Json
from tests.harness.hl7_results import Hl7Results, observation_code, reports_with, results_over_mllp
from tests.harness.results import ResultsBench

ORGANISM, AMPICILLIN, CIPROFLOXACIN, COUNT = "6463-4", "18864-9", "18906-8", "564-5"
LEUKOCYTES = "6690-2"
PARENT = f"{ORGANISM}&Bacteria identified&LN"
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


def shown(one: Json) -> str:
    concept = one.get("valueCodeableConcept", {})
    quantity = one.get("valueQuantity", {})
    flags = "".join(each["code"] for each in one.get("interpretation", {}).get("coding", ()))
    value: Any = concept.get("text") or one.get("valueString") or f"{quantity.get('comparator', '')}{quantity.get('value')}"
    return " ".join(filter(None, (observation_code(one), str(value), flags)))


async def antibiograms(results: Hl7Results) -> list[list[str]]:
    """What the clinic reads of each report that has a susceptibility."""
    reports = await results.bench.clinic_reports()
    with_drugs = reports_with(reports, lambda one: observation_code(one) == AMPICILLIN)
    return sorted([shown(one) for one in report.observations] for report in with_drugs)


TWO_ISOLATES = [
    [f"{ORGANISM} Escherichia coli", f"{AMPICILLIN} 32 R", f"{CIPROFLOXACIN} <0.25 S"],
    [f"{ORGANISM} Staphylococcus aureus", f"{AMPICILLIN} 2 S", f"{CIPROFLOXACIN} 4 R"],
]
CULTURE_GROUP = (obr(1), organism("1", ECOLI), organism("2", STAPH))
FIRST = (drug("", AMPICILLIN, "32", "R"), drug("", CIPROFLOXACIN, "<0.25", "S"))
SECOND = (drug("", AMPICILLIN, "2", "S"), drug("", CIPROFLOXACIN, "4", "R"))


def numbered(drugs: tuple[str, ...], *numbers: str) -> tuple[str, ...]:
    return tuple(one.replace("^LN||", f"^LN|{number}|") for one, number in zip(drugs, numbers, strict=True))


def sir(number: str, code: str, value: str) -> str:
    """An OBX that only says what the concentration of a drug means."""
    return f"OBX|1|CWE|{code}^drug^LN|{number}|{value}||||||F"


DIALECTS = {
    "parent result in OBR-26": (
        *CULTURE_GROUP,
        obr(2, "AST", parent=f"{PARENT}^1^Escherichia coli"),
        *FIRST,
        obr(3, "AST", parent=f"{PARENT}^2^Staphylococcus aureus"),
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
        obr(2, parent=f"{PARENT}^^Escherichia coli"), *FIRST,
        obr(3, parent=f"{PARENT}^^Staphylococcus aureus"), *SECOND),
    "susceptibilities in OBX-5 alone": (
        obr(1), organism("1", ECOLI), drug("1", AMPICILLIN, "32", ""), drug("1", CIPROFLOXACIN, "<0.25", ""),
        sir("1", AMPICILLIN, "R"), sir("1", CIPROFLOXACIN, "S^Susceptible"), organism("2", STAPH), drug("2", AMPICILLIN, "2", ""),
        drug("2", CIPROFLOXACIN, "4", ""), sir("2", AMPICILLIN, "S"), sir("2", CIPROFLOXACIN, "Resistant")),
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
    assert await results.send(*DIALECTS[dialect]) == "AA"
    assert await antibiograms(results) == TWO_ISOLATES
    assert (await results.bench.line_states())[0] == "completed"


async def test_isolates_keep_identity_from_preliminary_to_final(results: Hl7Results) -> None:
    """An organism gets its name and a second isolate comes: no report and no Observation is written twice.

    The line ends when all isolates are final; a susceptibility that is read anew is another statement.
    """
    rods = "87172008^Gram-negative rods^SCT"
    await results.send(obr(1, status="P"), organism("1", rods, "P"))
    await results.send(obr(1, status="P"), organism("1", rods, "P"), *numbered(FIRST, "1", "1"))
    *isolates, last = DIALECTS["OBX-4 of the organism"]
    await results.send(*isolates, last[:-1] + "P")
    assert (await results.bench.line_states())[0] == "accepted"
    await results.send(*isolates, last)
    assert (await results.bench.line_states())[0] == "completed"
    assert await antibiograms(results) == TWO_ISOLATES
    reports = await results.bench.clinic_reports()
    assert (len(reports), {report.status for report in reports}) == (3, {"final"})
    stored = await results.bench.partner.search("Observation", {})
    assert len(stored) == sum(len(report.observations) for report in reports)
    assert not [one for one in stored if one["status"] != "final"]
    assert not results.bench.event_texts("result_held")
    await results.send(*(one.replace("|32|ug/mL||R|", "|32|ug/mL||S|") for one in isolates), last)
    (first, _) = await results.values(AMPICILLIN)
    assert (first["status"], shown(first)) == ("amended", f"{AMPICILLIN} 32 S")


async def test_renamed_parent_result_stays_one_report(results: Hl7Results) -> None:
    for name, drugs in (("Gram-negative rods", FIRST[:1]), ("Escherichia coli", FIRST)):
        segments = obr(1), organism("1", f"1^{name}^99ORG"), obr(2, "AST", parent=f"{PARENT}^1^{name}"), *drugs
        assert await results.send(*segments) == "AA"
    assert await antibiograms(results) == [TWO_ISOLATES[0]]


ONE_ISOLATE = {
    "parent of an earlier message": (obr(1, parent=f"{PARENT}^1^Escherichia coli"), *FIRST),
    "one tube among two": (obr(1, filler="A-2"), organism("1", STAPH), "SPM|1|T2", obr(2), organism("1", ECOLI), "SPM|2|T1",
                           obr(3, "AST"), *FIRST, "SPM|3|T1"),
    "drugs counted by line": (obr(1), organism("1", ECOLI), obr(2, "AST"), *numbered(FIRST, "1", "2")),
}  # fmt: skip


@pytest.mark.parametrize("case", ONE_ISOLATE)
async def test_susceptibilities_belong_to_the_only_organism(results: Hl7Results, case: str) -> None:
    assert await results.send(*ONE_ISOLATE[case]) == "AA"
    assert await antibiograms(results) == [TWO_ISOLATES[0]]


async def test_susceptibility_without_value_is_the_value(results: Hl7Results) -> None:
    assert await results.send(obr(1), organism("1", ECOLI), f"OBX|2|ST|{AMPICILLIN}^drug^LN|1||||r|||F") == "AA"
    [one] = await results.values(AMPICILLIN)
    [coding] = one["valueCodeableConcept"]["coding"]
    assert (coding["system"], coding["code"]) == ("http://hl7.org/fhir/v2/0078", "R")


SHARED, NO_ORGANISM = "RAAAAAAAAAAAAAAA", "OBR 2: has susceptibilities without their organism"
REFUSED: tuple[tuple[tuple[str, ...], str], ...] = (
    ((obr(1), organism("1", ECOLI), organism("2", STAPH), *FIRST), "several organisms"),
    ((obr(1), organism("", ECOLI), organism("", STAPH)), f"the code {ORGANISM} stands in it more than once"),
    ((obr(1), organism("", ECOLI), *FIRST, obr(2), organism("", STAPH), *SECOND), "another organism"),
    ((obr(1), organism("1", ECOLI), obr(2), organism("1", STAPH)), "number them in OBX-4"),
    ((obr(1), *numbered(FIRST, "1", "1"), *numbered(SECOND, "2", "2")), "without their organism"),
    ((obr(1, parent=f"{ORGANISM}^1"), *FIRST), "without their organism"),
    ((obr(1), organism("", ECOLI).replace(ORGANISM, "ORG1"), FIRST[0],
      organism("", STAPH).replace(ORGANISM, "ORG2"), SECOND[1]), "several organisms"),
    ((obr(1), *FIRST), "without their organism"),
    ((obr(1), organism("1", ECOLI), organism("2", STAPH), obr(2, "AST"), *numbered(FIRST, "1", "2")), "has several"),
    ((obr(1), organism("1", ECOLI), drug("1", AMPICILLIN, "8", "S~R")), "OBX 2 says several susceptibilities"),
    ((obr(1), organism("1", ECOLI), drug("1", AMPICILLIN, "R", "S")), "OBX 2 says several susceptibilities"),
    ((*CULTURE_GROUP, obr(2, "AST", parent=f"{ORGANISM}^2"), organism("1", ECOLI), *FIRST), "another one in OBR-26"),
    ((*CULTURE_GROUP, obr(2, "AST", parent=f"{ORGANISM}^1^Staphylococcus aureus"), *FIRST), "by its number"),
    ((*CULTURE_GROUP, obr(2, "AST", parent=f"{ORGANISM}^1"), *numbered(FIRST, "2", "2")), "of another one than OBR-26"),
    ((obr(1), drug("", "718-7", "5.1", "H"), drug("", "718-7", "5.2", "H")), "OBX-4"),
    # a wound's susceptibilities are not those of the organism in the urine, though both have one number
    ((obr(1).replace("||A-1|", f"|{SHARED}|A-1|"), organism("1", ECOLI),
      obr(2, "AST", filler="A-2").replace("||A-2|", f"|{SHARED}|A-2|"), *numbered(FIRST, "1", "1")), NO_ORGANISM),
    ((obr(1, filler="1002").replace("||1002|", "|1001|1002|"), organism("1", ECOLI),
      obr(2, "AST", filler="1001"), *numbered(FIRST, "1", "1")), NO_ORGANISM),
    ((obr(1), organism("", ECOLI), "SPM|1|T1", obr(2, "AST"), *FIRST, "SPM|2|T2"), NO_ORGANISM),
    ((obr(1), organism("", ECOLI), "SPM|1|||UR", obr(2, "AST"), *FIRST, "SPM|2|||WND"), NO_ORGANISM),
    ((obr(1), organism("", ECOLI), obr(2, "AST", order="^A-9"), *FIRST), NO_ORGANISM),
)  # fmt: skip


async def test_result_that_may_be_another_isolates_is_refused(results: Hl7Results) -> None:
    answers = [(segments, why, await results.send(*segments)) for segments, why in REFUSED]
    assert [each for each in answers if not each[2].startswith("AE") or each[1] not in each[2]] == []
    assert await results.values(AMPICILLIN) == []


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
    answers = (("1", "POS^positive"), ("2", "NEG^negative"))
    values = (f"OBX|1|CWE|{COUNT}^IgG^LN|{number}|{text}||||||F" for number, text in answers)
    assert await results.send(obr(1), *values, f"OBX|1|ST|{AMPICILLIN}^IgM^LN||reactive|||I|||F") == "AA"
    assert (len(await results.values(COUNT)), len(await results.bench.clinic_reports())) == (2, 1)


# --- values


@pytest.mark.parametrize(
    ("kind", "text", "unit", "value", "shown"),
    [("NM", "7.20", "10\\S\\9/L", "7.20", "10^9/L"), ("TX", "<0.50", "mg/L", "0.50", "mg/L")],
)
async def test_quantity_reaches_clinic_with_its_unit(
    results: Hl7Results, kind: str, text: str, unit: str, value: str, shown: str
) -> None:
    assert await results.send(obr(1), f"OBX|1|{kind}|{LEUKOCYTES}^WBC^LN||{text}|{unit}|4.0-10.0||||F") == "AA"
    [one] = await results.values(LEUKOCYTES)
    assert (one["valueQuantity"]["value"], one["valueQuantity"]["unit"]) == (Decimal(value), shown)
    assert one["referenceRange"][0]["high"]["unit"] == shown


async def test_texts_ranges_and_days_reach_clinic_as_they_are(results: Hl7Results) -> None:
    """Escapes are read, lines joined, and what is no number stands beside the numbers."""
    texts = [("ST", LEUKOCYTES, "5-10|/HPF|^^10.0"), ("FT", "630-4", "\\H\\caf\\X00E9\\\\N\\\\.br\\a\\X07\\b||"),
             ("NM", "777-3", "****||"), ("TX", COUNT, "moderate||"), ("TX", COUNT, "growth||")]  # fmt: skip
    obx = [f"OBX|{number}|{kind}|{code}^x^LN||{text}||||F" for number, (kind, code, text) in enumerate(texts, 1)]
    assert await results.send(obr(1).replace("20260303080000+0000", "20260303"), *obx) == "AA"
    codes = (LEUKOCYTES, "630-4", "777-3", COUNT)
    found = [one for code in codes for one in await results.values(code)]
    assert [one["valueString"] for one in found] == ["5-10 /HPF", "café\nab", "****", "moderate\ngrowth"]
    assert [found[0]["referenceRange"][0]["text"], str(found[0]["referenceRange"][0]["high"]["value"])] == ["10.0", "10.0"]
    [report] = await results.bench.clinic_reports()
    assert report.resource["effectiveDateTime"] == "2026-03-03"


async def test_inbox_seals_what_an_adapter_keeps(bench: ResultsBench) -> None:
    inbox = StoreInbox(bench.store, bench.clock, "lis")
    sealed = await inbox.seal(b"PID|1||X")
    assert b"PID" not in sealed
    assert await inbox.unseal(sealed) == b"PID|1||X"
    assert await inbox.unseal(b"altered" + sealed) is None
