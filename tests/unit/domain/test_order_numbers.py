"""Which of several numbers counts: the barcode of a container, its second barcode, and how code systems are compared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lab_agent.fhir.order_numbers import (
    best_matches,
    choose_label,
    choose_old_order,
    choose_second_label,
    choose_supporting_info,
    is_second_label,
    known_second_labels,
    second_label_candidates,
)
from lab_agent.fhir.received_order import Extension
from lab_agent.shared.code_systems import CodeSystem, CodeSystems, SystemMatch
from lab_agent.shared.values import Identifier

SYSTEMS = CodeSystems(
    base_url="https://exchange.example/api/",
    lab_codes_url="https://lab.example/codes/",
    second_labels_system="https://lab.example/second",
)
WITHOUT_SECOND = CodeSystems(base_url="https://exchange.example/api", lab_codes_url="https://lab.example/codes")
LABELS, SECOND, FOREIGN = "https://lab.example/codes/labels", "https://lab.example/second", "https://else.example/x"


def number(value: str, system: str | None = LABELS) -> Identifier:
    return Identifier(system=system, value=value)


def has_dash(value: str) -> bool:
    return "-" in value


@pytest.mark.parametrize(
    ("identifiers", "label"),
    [
        ([], None),
        ([number("1", FOREIGN)], None),
        ([number("1", None), number("2")], "2"),
        ([number("1", LABELS.upper()), number("2")], "2"),
        ([number("1", None), number("2", LABELS.upper())], "2"),
        ([number("1-1"), number("2")], "2"),
        ([number("1-1")], "1-1"),
        ([number("1", SECOND)], None),
    ],
)
def test_label_is_the_best_match_without_second_form(identifiers: list[Identifier], label: str | None) -> None:
    chosen = choose_label(identifiers, SYSTEMS, has_dash)
    assert (chosen and chosen.value) == label


MIS = "https://lab.example/codes/mis"


@pytest.mark.parametrize(
    ("identifiers", "chosen"),
    [
        ([], None),
        ([number("1", FOREIGN)], None),
        ([number("1", None), number("2", MIS)], "2"),
        ([number("1", MIS.upper()), number("1", MIS.title())], "1"),
        ([number("1", MIS), number("2", MIS)], None),
    ],
)
def test_old_order_is_the_one_number_of_its_system(identifiers: list[Identifier], chosen: str | None) -> None:
    found = choose_old_order(identifiers, SYSTEMS)
    assert (found and found.value) == chosen
    assert best_matches([number("1"), number("1"), number("2")], SYSTEMS.labels) == (number("1"), number("2"))


@pytest.mark.parametrize(
    ("identifiers", "candidates", "second"),
    [
        ([number("1")], (), None),
        ([number("1"), number("2", SECOND)], ("2",), "2"),
        ([number("1"), number("2", SECOND), number("3-3", FOREIGN)], ("2",), "2"),
        ([number("1"), number("2", FOREIGN), number("3-3", FOREIGN)], ("2", "3-3"), "3-3"),
        ([number("1"), number("2", FOREIGN)], ("2",), None),
        ([number("1"), number("2-2", FOREIGN), number("2-2", SECOND)], ("2-2",), "2-2"),
    ],
)
def test_second_label_is_of_its_form_or_system(
    identifiers: list[Identifier], candidates: tuple[str, ...], second: str | None
) -> None:
    assert second_label_candidates(identifiers, SYSTEMS, has_dash) == candidates
    assert choose_second_label(identifiers, SYSTEMS, has_dash) == second


RIGHT, ELSEWHERE = "https://exchange.example/api/extra/supportingInfo", "https://else.example/extra/supportingInfo"


@pytest.mark.parametrize(
    ("extensions", "info"),
    [
        ([("urn:x", "a")], None),
        ([(ELSEWHERE, "a")], "a"),
        ([(None, "a"), (ELSEWHERE, "b"), (RIGHT, "c")], "c"),
        ([(None, "a"), (ELSEWHERE, "b"), (RIGHT, None)], "b"),
    ],
)
def test_supporting_info_is_of_the_best_address(extensions: list[tuple[str | None, str | None]], info: str | None) -> None:
    assert choose_supporting_info([Extension(url=url, value=value) for url, value in extensions], SYSTEMS) == info


@pytest.mark.parametrize(("system", "is_second"), [(SECOND, True), (SECOND.upper(), True), (None, False), (LABELS, False)])
def test_second_label_is_told_by_its_system(system: str | None, is_second: bool) -> None:
    assert is_second_label(number("1", system), SYSTEMS) is is_second
    assert not is_second_label(number("1", system), WITHOUT_SECOND)
    assert known_second_labels([number("1", system)], SYSTEMS) == (("1",) if is_second else ())


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("nomenclature", "https://exchange.example/api/terminology/nomenclature"),
        ("task_type", "https://exchange.example/api/terminology/task_type"),
        ("specimen_type", "https://exchange.example/api/terminology/specimen-type"),
        ("container_type", "https://exchange.example/api/terminology/specimen_type"),
        ("method", "https://exchange.example/api/terminology/treatment_protocol"),
        ("supporting_info", "https://exchange.example/api/extra/supportingInfo"),
        ("contract", "https://lab.example/codes/contract"),
        ("labels", "https://lab.example/codes/labels"),
        ("notification", "https://lab.example/codes/notification"),
    ],
)
def test_system_follows_from_the_addresses(name: str, url: str) -> None:
    system = getattr(replace(SYSTEMS), name)  # of a copy: what SYSTEMS was asked for once, it keeps
    assert system.url == url
    assert url.endswith(f"/{system.suffix}")
    assert CodeSystem("https://other.example", system.suffix).match(url) is SystemMatch.SPELLED_DIFFERENTLY


def test_systems_without_a_suffix_have_their_address() -> None:
    systems = replace(SYSTEMS)
    assert systems.old_orders == CodeSystem("https://lab.example/codes/mis", "")
    assert (systems.second_labels, replace(WITHOUT_SECOND).second_labels) == (CodeSystem(SECOND, ""), None)
    assert systems.patients == "https://exchange.example/api/fhir/Patient"
    slashes = CodeSystems(base_url="https://exchange.example/X//", lab_codes_url="https://lab.example/X/")
    assert slashes.nomenclature.url == "https://exchange.example/X/terminology/nomenclature"
    assert slashes.labels.url == "https://lab.example/X/labels"


@pytest.mark.parametrize(
    ("received", "match"),
    [
        (None, SystemMatch.MISSING),
        (" ", SystemMatch.MISSING),
        ("https://lab.example/codes/labels", SystemMatch.EXACT),
        ("HTTP://LAB.example/codes//labels", SystemMatch.SPELLED_DIFFERENTLY),
        (" lab.example/codes/labels", SystemMatch.SPELLED_DIFFERENTLY),
        ("https://else.example/labels", SystemMatch.SPELLED_DIFFERENTLY),
        ("https://else.example/labels/x", SystemMatch.FOREIGN),
        ("https://lab.example/" + "x" * 300 + "/labels", SystemMatch.SPELLED_DIFFERENTLY),
    ],
)
def test_system_is_compared_in_one_spelling(received: str | None, match: SystemMatch) -> None:
    assert SYSTEMS.labels.match(received) is match
    assert SYSTEMS.labels.rank(received) == list(SystemMatch).index(match)


def test_hyphen_and_underscore_are_one() -> None:
    assert CodeSystem("https://x.example/a_b", "").match("https://x.example/a-b") is SystemMatch.SPELLED_DIFFERENTLY
    assert CodeSystem("https://x.example/a_b", "").match("https://x.example/ab") is SystemMatch.FOREIGN
    assert CodeSystem("https://x.example/ab", "").match("git+ssh.2-x://x.example/ab") is SystemMatch.SPELLED_DIFFERENTLY
