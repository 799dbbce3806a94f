"""HL7 v2 messages from the adapter's port to the clinic: values with their units and texts that can be read, and cultures.

Of a culture with isolates: which susceptibilities belong to which organism.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from lab_agent.lis.guard import GuardedInbox
from lab_agent.lis.hl7v2 import Hl7v2Adapter, Hl7v2Settings
from lab_agent.results.result_inbox import StoreInbox
from lab_sandbox.partner.errors import Json
from tests.harness.hl7_wire import dialled, framed
from tests.harness.results import ResultsBench
from tests.integration.workflow.conftest import parametrize_first

HEADER = "MSH|^~\\&|LIS|LAB|AGENT||20260303100000+0000||ORU^R01^ORU_R01|M{}|P|2.5.1"
ORGANISM, AMPICILLIN, CIPROFLOXACIN, LEUKOCYTES = "6463-4", "18864-9", "18906-8", "6690-2"
PARENT = f"{ORGANISM}&Bacteria identified&LN"
TIMES = "|||20260303080000+0000|||||||||||||||20260303093000+0000|||"
ECOLI, STAPH = "112283007^Escherichia coli^SCT", "3092008^Staphylococcus aureus^SCT"


@dataclass
class Hl7Results:
    """Sends results to the adapter of a bench, and lets everything that follows happen."""

    bench: ResultsBench
    port: int
    numbers: Any = field(default_factory=lambda: count(1))

    async def send(self, *segments: str) -> str:
        """The code of the answer and its reason, such as `AE OBR 1: …`."""
        async with dialled(self.port) as wire:
            await wire.send(framed("\r".join((HEADER.format(next(self.numbers)), "PID|1||X", *segments)) + "\r"))
            answer = (await wire.frame()).decode().split("\r")
        await self.bench.run_until_idle()
        reasons = [segment.split("|")[8] for segment in answer if segment.startswith("ERR|")]
        return " ".join((answer[1].split("|")[1], *reasons))

    async def values(self, code: str) -> list[Json]:
        """Every Observation of a LOINC code that the clinic reads, in the order of its reports."""
        reports = await self.bench.clinic_reports()
        return [one for report in reports for one in report.observations if observation_code(one) == code]

    async def antibiograms(self) -> list[list[str]]:
        """What the clinic reads of each report that has a susceptibility."""
        reports = [report.observations for report in await self.bench.clinic_reports()]
        return sorted([*map(shown, each)] for each in reports if AMPICILLIN in map(observation_code, each))


@pytest.fixture
async def results(bench: ResultsBench, tmp_path: Path) -> AsyncIterator[Hl7Results]:
    listening = {"role": "server", "port": 0}
    given = {"orders": listening, "results": listening, "folder": tmp_path / "own", "duplicates": "msh10"}
    adapter = Hl7v2Adapter(Hl7v2Settings.model_validate(given), "hl7v2")
    await adapter.start(GuardedInbox(StoreInbox(bench.store, bench.clock, "lis"), "hl7v2"))
    try:
        yield Hl7Results(bench, adapter.ports[1])
    finally:
        await adapter.stop()


def observation_code(observation: Json) -> str:
    return str(observation["code"]["coding"][0]["code"])


def obr(number: int, item: str = "001.001", *, status: str = "F", filler: str = "A-1", parent: str = "", order: str = "") -> str:
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


ONE_ISOLATE = {
    "parent of an earlier message": (obr(1, parent=f"{PARENT}^1^Escherichia coli"), *FIRST),
    "one tube among two": (obr(1, filler="A-2"), organism("1", STAPH), "SPM|1|T2", obr(2), organism("1", ECOLI), "SPM|2|T1",
                           obr(3, "AST"), *FIRST, "SPM|3|T1"),
    "drugs counted by line": (obr(1), organism("1", ECOLI), obr(2, "AST"), *numbered(FIRST, "1", "2")),
}  # fmt: skip


@parametrize_first("dialect", [*DIALECTS, *ONE_ISOLATE])
async def test_isolates_reach_clinic_as_one_report_each(results: Hl7Results, dialect: str) -> None:
    """The organism first, then its susceptibilities; without a switch for S, I and R."""
    assert await results.send(*{**DIALECTS, **ONE_ISOLATE}[dialect]) == "AA"
    assert await results.antibiograms() == (TWO_ISOLATES if dialect in DIALECTS else TWO_ISOLATES[:1])
    assert dialect not in DIALECTS or (await results.bench.line_states())[0] == "completed"


@pytest.mark.slow
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
    assert await results.antibiograms() == TWO_ISOLATES
    reports = await results.bench.clinic_reports()
    assert (len(reports), {report.status for report in reports}) == (3, {"final"})
    stored = await results.bench.partner.search("Observation", {})
    assert len(stored) == sum(len(report.observations) for report in reports)
    assert not [one for one in stored if one["status"] != "final"]
    assert not results.bench.event_texts("result_held")
    await results.send(*(one.replace("|32|ug/mL||R|", "|32|ug/mL||S|") for one in isolates), last)
    (first, _) = await results.values(AMPICILLIN)
    assert (first["status"], shown(first)) == ("amended", f"{AMPICILLIN} 32 S")


@pytest.mark.slow
async def test_susceptibility_without_value_is_the_value(results: Hl7Results) -> None:
    assert await results.send(obr(1), organism("1", ECOLI), f"OBX|2|ST|{AMPICILLIN}^drug^LN|1||||r|||F") == "AA"
    [one] = await results.values(AMPICILLIN)
    [coding] = one["valueCodeableConcept"]["coding"]
    assert (coding["system"], coding["code"]) == ("http://hl7.org/fhir/v2/0078", "R")


SHARED, NO_ORGANISM = "RAAAAAAAAAAAAAAA", "OBR 2: has susceptibilities without their organism"
REFUSED: tuple[tuple[tuple[str, ...], str], ...] = (
    ((obr(1), organism("", ECOLI), organism("", STAPH)), f"the code {ORGANISM} stands in it more than once"),
    ((obr(1), organism("", ECOLI), *FIRST, obr(2), organism("", STAPH), *SECOND), "another organism"),
    ((obr(1), organism("1", ECOLI), obr(2), organism("1", STAPH)), "number them in OBX-4"),
    ((obr(1), *numbered(FIRST, "1", "1"), *numbered(SECOND, "2", "2")), "without their organism"),
    ((obr(1), organism("", ECOLI).replace(ORGANISM, "ORG1"), FIRST[0],
      organism("", STAPH).replace(ORGANISM, "ORG2"), SECOND[1]), "several organisms"),
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


@pytest.mark.slow
async def test_result_that_may_be_another_isolates_is_refused(results: Hl7Results) -> None:
    answers = [(segments, why, await results.send(*segments)) for segments, why in REFUSED]
    assert [each for each in answers if not each[2].startswith("AE") or each[1] not in each[2]] == []
    assert await results.values(AMPICILLIN) == []


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


@pytest.mark.slow
async def test_inbox_seals_what_an_adapter_keeps(bench: ResultsBench) -> None:
    inbox = StoreInbox(bench.store, bench.clock, "lis")
    sealed = await inbox.seal(b"PID|1||X")
    assert b"PID" not in sealed
    assert await inbox.unseal(sealed) == b"PID|1||X"
    assert await inbox.unseal(b"altered" + sealed) is None
