"""What an order as received says: whose it is, who owns it, and what belongs to what."""

from __future__ import annotations

import pytest

from lab_agent.fhir.human_name import HumanName
from lab_agent.fhir.received_order import (
    AccessRight,
    ReceivedLine,
    ReceivedOrder,
    ReceivedPatient,
    ReceivedRequest,
    ReceivedSpecimen,
    ReceivedTask,
    ReferenceText,
    ResourceRef,
    UnreadableResource,
    patient_key,
)
from lab_agent.lis.lab_order import AnswerStep, format_answer_path
from lab_agent.shared.errors import OutcomeIssue
from lab_agent.shared.values import Identifier


def link(type_: str, id_: str) -> ReferenceText:
    return ReferenceText(where="x", target=ResourceRef(type_, id_))


def request(id_: str, owner: str | None = "g1", patient: str | None = "p1", specimens: tuple[str, ...] = ()) -> ReceivedRequest:
    return ReceivedRequest(
        ref=ResourceRef("ProcedureRequest", id_),
        where=f"ProcedureRequest[{id_}]",
        subject=link("Patient", patient) if patient else None,
        rights=(AccessRight("read", "g9"), *((AccessRight("owner", owner),) if owner else ())),
        specimens=tuple(link("Specimen", each) for each in specimens),
    )


def line(id_: str, its_request: ReceivedRequest | None) -> ReceivedLine:
    return ReceivedLine(task=ReceivedTask(ref=ResourceRef("Task", id_), where=f"Task[{id_}]"), request=its_request)


def order(*requests: ReceivedRequest | None, patients: tuple[str, ...] = ("p1",)) -> ReceivedOrder:
    return ReceivedOrder(
        task=ReceivedTask(ref=None, where="Task"),
        lines=tuple(line(str(number), each) for number, each in enumerate(requests)),
        patients=tuple(ReceivedPatient(ref=ResourceRef("Patient", each)) for each in patients),
        specimens=tuple(ReceivedSpecimen(ref=ResourceRef("Specimen", each), where=each) for each in ("s1", "s2")),
    )


def test_right_has_its_short_name() -> None:
    systems = ("read", "https://x.example/rights/Owner", "https://x.example/rights/updateBody/", "owner//", "rights/readX")
    assert [AccessRight(each, "g").name for each in systems] == ["read", "owner", "updatebody", "owner", "readx"]


def test_places_are_named_as_in_the_interface() -> None:
    assert str(ResourceRef("ProcedureRequest", "Ab1")) == "procedurerequest/Ab1"
    assert (ReceivedTask(ref=None, where="Task").id, line("7", None).id) == ("", "7")
    assert line("7", request("1")).where == "ProcedureRequest[1]"
    assert line("7", None).where == "Task[7]"
    assert format_answer_path((AnswerStep(link_id="drugs", repeat=2), AnswerStep(link_id="dose"))) == "drugs[2]/dose"


@pytest.mark.parametrize("why", [{"is_foreign": True}, {"is_unaddressable": True}])
def test_reference_that_cannot_be_followed_is_unusable(why: dict[str, bool]) -> None:
    assert (ReferenceText(where="x", **why).is_unusable, ReferenceText(where="x").is_unusable) == (True, False)


def test_request_of_two_lines_counts_once() -> None:
    one, two = request("1"), request("2")
    assert order(one, two, one, None).requests == (one, two)


@pytest.mark.parametrize(
    ("given", "found"), [(("x1", "x1"), "x1"), (("x1", None), "x1"), (("x1", "x2"), None), ((None,), None), ((), None)]
)
def test_counterparty_and_patient_are_the_only_ones(given: tuple[str | None, ...], found: str | None) -> None:
    requests = [request(str(number), each, each) for number, each in enumerate(given)]
    assert [each.owner for each in requests] == list(given)
    assert order(*requests).counterparty == found
    assert order(*requests).patient_reference == (found and f"patient/{found}")
    patients = tuple(dict.fromkeys(filter(None, given)))
    patient = order(patients=patients).patient
    assert (patient and patient.ref.id) == (None if len(patients) > 1 else found)


def test_patient_has_one_key() -> None:
    numbered = ReferenceText(where="x", identifier=Identifier(system="s", value="v"))
    assert patient_key(link("Patient", "p1")) == "patient/p1"
    assert patient_key(numbered) == "s|v"
    assert patient_key(ReferenceText(where="x", identifier=Identifier(value="v"))) == "|v"
    assert patient_key(ReferenceText(where="x", text="somebody")) is patient_key(None) is None


def test_specimens_and_lines_find_each_other() -> None:
    one, two = request("1", specimens=("s1", "s3")), request("2")
    whole = order(one, two, None)
    first, second = whole.specimens
    assert whole.specimens_of(one) == (first,)
    assert whole.specimens_of(two) == ()
    assert whole.lines_of(first) == (whole.lines[0],)
    assert whole.lines_of(second) == ()


@pytest.mark.parametrize(
    ("family", "given", "anonymous"),
    [
        ("0123456789", ("-", "-"), True),
        ("012345678", ("-", "-"), False),
        ("01234567890", ("-", "-"), False),
        ("٠١٢٣٤٥٦٧٨٩", ("-", "-"), False),
        ("0123456789", ("-",), False),
        ("0123456789", ("-", "A"), False),
    ],
)
def test_anonymous_name_has_ten_digits_and_two_dashes(family: str | None, given: tuple[str, ...], anonymous: bool) -> None:
    assert HumanName(family=family, given=given).is_anonymous is anonymous


def test_words_of_the_service_are_neither_compared_nor_shown() -> None:
    """They may name the patient (law 7)."""
    with_words = UnreadableResource("forbidden", 403, (OutcomeIssue("error", "forbidden", "Anna may not be seen"),))
    assert with_words == UnreadableResource("forbidden", 403)
    assert "Anna" not in repr(with_words)
