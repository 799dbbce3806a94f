from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab_agent.domain.received_order import ResourceRef
from lab_agent.errors import ForeignOrigin
from lab_agent.fhir.references import is_same_origin, leads_elsewhere, parse_reference

BASE = "https://exchange.example/api/"


@pytest.mark.parametrize(
    ("reference", "kind", "resource_id"),
    [
        ("patient/1", "Patient", "1"),
        ("Patient/1", "Patient", "1"),
        ("PATIENT/1", "Patient", "1"),
        ("fhir/patient/1", "Patient", "1"),
        ("/fhir/patient/1", "Patient", "1"),
        ("/api/fhir/patient/1", "Patient", "1"),
        ("procedurerequest/a-B.7/_history/3", "ProcedureRequest", "a-B.7"),
        (" specimen/9 ", "Specimen", "9"),
        ("https://exchange.example/api/fhir/Questionnaireresponse/q/_HISTORY/2", "QuestionnaireResponse", "q"),
        ("https://exchange.example/api/Task/t", "Task", "t"),
        ("HTTPS://Exchange.Example:443/api/FHIR/task/t", "Task", "t"),
        ("//exchange.example/api/task/t", "Task", "t"),
        ("contract/5f0c", "Contract", "5f0c"),
        ("goal/5", "goal", "5"),
    ],
)
def test_every_reference_form_parsed(reference: str, kind: str, resource_id: str) -> None:
    assert parse_reference(reference, BASE) == ResourceRef(kind, resource_id)


@pytest.mark.parametrize(
    "reference",
    [
        "https://evil.example/api/Patient/1",
        "http://exchange.example/api/Patient/1",
        "https://exchange.example:8443/api/Patient/1",
        "//evil.example/Patient/1",
        "https://exchange.example@evil.example/api/Patient/1",
    ],
)
def test_foreign_origin_rejected(reference: str) -> None:
    with pytest.raises(ForeignOrigin):
        parse_reference(reference, BASE)
    assert not is_same_origin(reference, BASE)


@pytest.mark.parametrize(
    ("base", "reference", "elsewhere"),
    [
        ("http://host:8480", "http://host:8480/hapi/fhir/Patient/8", True),
        ("http://host:8480", "http://host:8480/hapi/Patient/8/_history/2", True),
        ("http://host:8480", "http://host:8480/fhir/Patient/8?x=1", False),
        ("http://host:8480", "http://host:8480/Patient", False),
        ("http://host/api", "http://host/other/Patient/8", True),
        ("http://host/api", "http://host/api/other/Patient/8", True),
        ("http://host/api", "http://host/API/fhir/Patient/8#x", False),
        ("http://host/api", "https://host/api/Patient/8", True),
        ("http://host/api", "hapi/fhir/Patient/8", False),
    ],
)
def test_address_of_another_path_leads_elsewhere(base: str, reference: str, elsewhere: bool) -> None:
    assert leads_elsewhere(reference, base) is elsewhere


@pytest.mark.parametrize(
    "reference",
    [
        "",
        "1",
        "patient",
        "patient/",
        "patient/..",
        "patient/../task/1",
        "#contained",
        "urn:uuid:0",
        "patient/1?x=1",
        "patient/1#f",
        None,
        5,
        {},
        ["patient/1"],
        "http://[",
        "javascript:alert(1)/Patient/1",
        "other/fhir/patient/1",
        "patient/a b",
        "\x00/\x01",
    ],
)
def test_invalid_reference_gives_none(reference: object) -> None:
    assert parse_reference(reference, BASE) is None


@given(st.one_of(st.text(), st.from_regex(r"(https?:)?/{0,3}[\w.@:\[\]]{0,9}/(fhir/)?\w{0,9}/[\w.%\-]{0,5}(/_history/\w?)?")))
def test_arbitrary_reference_does_not_crash(reference: str) -> None:
    try:
        found = parse_reference(reference, BASE)
    except ForeignOrigin:
        return
    assert found is None or parse_reference(str(found), BASE) is not None


@given(
    st.from_regex(r"[A-Za-z0-9\-]{1,64}", fullmatch=True), st.sampled_from(["Patient", "Specimen", "ProcedureRequest", "Task"])
)
def test_written_reference_reads_back(resource_id: str, kind: str) -> None:
    ref = ResourceRef(kind, resource_id)
    assert parse_reference(str(ref), BASE) == ref
