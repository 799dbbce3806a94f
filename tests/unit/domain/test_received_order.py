"""What an order as received says: whose it is, who owns it, and what belongs to what."""

from __future__ import annotations

import pytest

from lab_agent.domain.human_name import HumanName
from lab_agent.domain.lab_order import AnswerStep, format_answer_path
from lab_agent.domain.received_order import (
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
from lab_agent.domain.values import Identifier
from lab_agent.errors import OutcomeIssue


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


@pytest.mark.parametrize(
    ("system", "name"),
    [
        ("read", "read"),
        ("https://x.example/rights/Owner", "owner"),
        ("https://x.example/rights/updateBody/", "updatebody"),
        ("owner//", "owner"),
        ("rights/readX", "readx"),
    ],
)
def test_right_has_its_short_name(system: str, name: str) -> None:
    assert AccessRight(system, "g").name == name


def test_reference_is_written_as_in_the_interface() -> None:
    assert str(ResourceRef("ProcedureRequest", "Ab1")) == "procedurerequest/Ab1"


def test_task_without_reference_has_no_id() -> None:
    assert ReceivedTask(ref=None, where="Task").id == ""
    assert line("7", None).id == "7"


def test_line_is_where_its_request_is() -> None:
    assert line("7", request("1")).where == "ProcedureRequest[1]"
    assert line("7", None).where == "Task[7]"


def test_request_of_two_lines_counts_once() -> None:
    one, two = request("1"), request("2")
    assert order(one, two, one, None).requests == (one, two)


@pytest.mark.parametrize(
    ("owners", "counterparty"), [(("g1", "g1"), "g1"), (("g1", None), "g1"), (("g1", "g2"), None), ((None,), None), ((), None)]
)
def test_counterparty_is_the_one_owner(owners: tuple[str | None, ...], counterparty: str | None) -> None:
    requests = [request(str(number), owner) for number, owner in enumerate(owners)]
    assert [each.owner for each in requests] == list(owners)
    assert order(*requests).counterparty == counterparty


@pytest.mark.parametrize(("patients", "found"), [(("p1",), "p1"), ((), None), (("p1", "p2"), None)])
def test_patient_is_the_only_one(patients: tuple[str, ...], found: str | None) -> None:
    patient = order(patients=patients).patient
    assert (patient and patient.ref.id) == found


@pytest.mark.parametrize(
    ("subjects", "reference"),
    [(("p1", "p1"), "patient/p1"), (("p1", None), "patient/p1"), (("p1", "p2"), None), ((None,), None), ((), None)],
)
def test_order_has_one_patient_or_none(subjects: tuple[str | None, ...], reference: str | None) -> None:
    requests = [request(str(number), patient=each) for number, each in enumerate(subjects)]
    assert order(*requests).patient_reference == reference


@pytest.mark.parametrize(
    ("reference", "key"),
    [
        (None, None),
        (ReferenceText(where="x", text="somebody"), None),
        (link("Patient", "p1"), "patient/p1"),
        (ReferenceText(where="x", identifier=Identifier(system="s", value="v")), "s|v"),
        (ReferenceText(where="x", identifier=Identifier(value="v")), "|v"),
    ],
)
def test_patient_has_one_key(reference: ReferenceText | None, key: str | None) -> None:
    assert patient_key(reference) == key


def test_specimens_and_lines_find_each_other() -> None:
    one, two = request("1", specimens=("s1", "s3")), request("2")
    whole = order(one, two, None)
    first, second = whole.specimens
    assert whole.specimens_of(one) == (first,)
    assert whole.specimens_of(two) == ()
    assert whole.lines_of(first) == (whole.lines[0],)
    assert whole.lines_of(second) == ()


@pytest.mark.parametrize(
    ("name", "anonymous"),
    [
        (HumanName(family="0123456789", given=("-", "-")), True),
        (HumanName(family="012345678", given=("-", "-")), False),
        (HumanName(family="01234567890", given=("-", "-")), False),
        (HumanName(family="012345678x", given=("-", "-")), False),
        (HumanName(family="٠١٢٣٤٥٦٧٨٩", given=("-", "-")), False),
        (HumanName(family="0123456789", given=("-",)), False),
        (HumanName(family="0123456789", given=("A", "-")), False),
        (HumanName(family="0123456789", given=("-", "A")), False),
        (HumanName(given=("-", "-")), False),
    ],
)
def test_anonymous_name_has_ten_digits_and_two_dashes(name: HumanName, anonymous: bool) -> None:
    assert name.is_anonymous is anonymous


def test_path_of_an_answer_counts_repeats() -> None:
    assert format_answer_path((AnswerStep(link_id="drugs", repeat=2), AnswerStep(link_id="dose"))) == "drugs[2]/dose"
    assert format_answer_path(()) == ""


def test_words_of_the_service_are_neither_compared_nor_shown() -> None:
    """They may name the patient (law 7)."""
    with_words = UnreadableResource("forbidden", 403, (OutcomeIssue("error", "forbidden", "Anna may not be seen"),))
    assert with_words == UnreadableResource("forbidden", 403)
    assert "Anna" not in repr(with_words)
