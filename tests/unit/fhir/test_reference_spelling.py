from __future__ import annotations

from typing import Literal

import pytest

from lab_agent.fhir.received_order import ResourceRef
from lab_agent.fhir.reference_spelling import ReferenceWriter, read_spellings
from lab_agent.shared import exact_json

BASE = "https://exchange.example/api/"
PATIENT, OBSERVATION = ResourceRef("Patient", "8"), ResourceRef("Observation", "9")


def spellings(*texts: object) -> ReferenceWriter:
    received = exact_json.dumps({"resources": [["x", "1", {"any": [{"reference": text} for text in texts]}]]})
    return ReferenceWriter("as_read", read_spellings(received, BASE))


@pytest.mark.parametrize(
    ("spelling", "expected"), [("as_read", "observation/9"), ("lower", "observation/9"), ("fhir", "Observation/9")]
)
def test_order_that_says_nothing_is_answered_as_the_interface_writes(
    spelling: Literal["as_read", "lower", "fhir"], expected: str
) -> None:
    assert ReferenceWriter(spelling).write(OBSERVATION) == {"reference": expected}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Patient/8", "Patient/8"),
        ("patient/8/_history/3", "patient/8"),
        (f"{BASE}fhir/Patient/8", f"{BASE}fhir/Patient/8"),
        ("https://elsewhere.example/Patient/8", "patient/8"),
        ("Patient/8?x=1", "patient/8"),
        (5, "patient/8"),
    ],
)
def test_reference_is_written_as_read_without_its_version(text: object, expected: str) -> None:
    assert spellings(text).write(PATIENT) == {"reference": expected}


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["patient/8", "Task/3", "ProcedureRequest/2"], "Observation/9"),
        (["Patient/8", "procedurerequest/2"], "observation/9"),
        ([f"{BASE}fhir/Specimen/1"], f"{BASE}fhir/Observation/9"),
        (["/fhir/Specimen/1"], "/fhir/Observation/9"),
        (["Organization/1"], "observation/9"),
    ],
)
def test_what_the_order_does_not_name_follows_its_example(texts: list[str], expected: str) -> None:
    assert spellings(*texts).write(OBSERVATION) == {"reference": expected}


@pytest.mark.parametrize("received", [None, b"", b"[]", b"{", b'{"reference": {"reference": ["x"]}}'])
def test_order_that_is_not_kept_spells_nothing(received: bytes | None) -> None:
    assert read_spellings(received, BASE) == {}
