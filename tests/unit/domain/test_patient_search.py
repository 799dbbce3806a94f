"""Who is meant, and which message is about that person: nothing is guessed."""

from __future__ import annotations

from datetime import date

import pytest

from lab_agent.orders.patient_search import KnownPatient, MessageSearch, PatientCriteria, search_terms, words_of
from lab_agent.shared.values import PartialDate

BORN = date(1961, 4, 12)
ANNA = KnownPatient(
    names=(words_of("Petrova Anna Sergeevna"), words_of("Sidorova Anna")),
    birth_dates=frozenset({"1961-04-12"}),
    identifiers=frozenset({"11223344595"}),
)
HL7 = "PID|1||4711||Петрова^Анна^^||19610412|F\rOBR|1|R0123456789ABCDE\r"


@pytest.mark.parametrize(
    ("criteria", "found"),
    [
        (PatientCriteria(name="anna PETROVA", birth_date=BORN), True),
        (PatientCriteria(name="Anna Sidorova", birth_date=BORN), True),
        (PatientCriteria(name="Sidorova Sergeevna", birth_date=BORN), False),  # words of two names
        (PatientCriteria(name="Petrova", birth_date=date(1961, 12, 4)), False),
        (PatientCriteria(name="Petrova", birth_date=PartialDate("1961")), False),  # erased is who is meant for certain
        (PatientCriteria(identifier="112-233-445 95"), True),
        (PatientCriteria(identifier="112-233-445 96"), False),
        (PatientCriteria(identifier="112-233-445 95", name="Ivanova"), False),
    ],
)
def test_criteria_match_all_or_nothing(criteria, found):
    assert criteria.matches(ANNA) is found


def test_name_alone_is_not_enough():
    for enough in ({"name": "Petrova", "birth_date": BORN}, {"identifier": "4711"}):
        assert PatientCriteria(**enough).is_enough
    for little in ({"name": "Petrova"}, {"birth_date": BORN}, {"identifier": " - "}):
        assert not PatientCriteria(**little).is_enough


def test_message_is_read_in_common_code_pages_and_that_of_its_sender():
    search = MessageSearch(PatientCriteria(name="Петрова Анна", birth_date=BORN))
    for encoding in ("utf-8", "cp1251", "cp866"):
        assert search.is_about(HL7.encode(encoding))
        assert not search.is_about(HL7.replace("19610412", "19610413").encode(encoding))
    search, text = MessageSearch(PatientCriteria(name="Petrova Ännä", birth_date=BORN)), "Petrova Ännä 19610412"
    assert search.is_about(text.encode("cp500"), "cp500")
    assert not search.is_about(text.encode("cp500"))
    assert search.is_about(text.encode("latin-1"))
    assert not MessageSearch(None).is_about(HL7.encode())


def test_message_is_found_by_key_as_whole_word():
    search = MessageSearch(None, search_terms(["R0123456789ABCDE", "12", None]))
    assert search.terms == {"R0123456789ABCDE"}
    assert search.is_about(HL7.encode())
    assert not search.is_about(HL7.replace("ABCDE", "ABCDEF").encode())


def test_term_is_searched_for_as_it_is_written():
    search = MessageSearch(None, frozenset({"A.C-17", "(AC17)"}))
    assert all(search.is_about(f"OBR|{term}|".encode()) for term in search.terms)
    assert not search.is_about(b"OBR|AxC-17|AC17|A")


@pytest.mark.parametrize(
    ("criteria", "text", "found"),
    [
        (PatientCriteria(identifier="47-11"), "PID|47-11|", True),
        (PatientCriteria(identifier="47-11"), "PID|4711|", True),
        (PatientCriteria(identifier="4711"), "PID|471|", False),
        (PatientCriteria(identifier="4711", name="Petrova"), "PID|4711|Ivanova", False),
        (PatientCriteria(identifier="4711", name="Petrova"), "PID|4712|Petrova", False),
        (PatientCriteria(name="Petrova Anna"), "Anna Petrova", True),
        (PatientCriteria(name="Petrova", birth_date=BORN), "Petrova 12.04.1961", True),
        (PatientCriteria(name="Petrova", birth_date=BORN), "Petrova 1961-04-12", True),
        (PatientCriteria(name="Petrova", birth_date=PartialDate("1961-04")), "Petrova|196104|", True),
        (PatientCriteria(name="Petrova", birth_date=BORN), "Petrova 04/12/1961", False),
    ],
)
def test_message_is_about_whoever_it_names(criteria, text, found):
    assert MessageSearch(criteria).is_about(text.encode()) is found


def test_terms_of_criteria_are_among_those_of_the_patient():
    expected = {"name anna", "name petrova", "number 11223344595"}
    criteria = PatientCriteria(name="Anna Petrova", birth_date=BORN, identifier="112-233-445 95")
    assert criteria.search_terms == expected
    assert criteria.birth_terms == {"born 1961", "born 1961-04", "born 1961-04-12"}
    assert PatientCriteria(birth_date=PartialDate("1961-04")).birth_terms == {"born 1961", "born 1961-04"}
    assert ANNA.search_terms == expected | {"born 1961-04-12", "name sergeevna", "name sidorova"}
    assert PatientCriteria().search_terms == PatientCriteria().birth_terms == frozenset()


def test_words_and_numbers_are_compared_in_one_spelling():
    assert words_of("Сёмина-Ли_2") == {"семина", "ли", "2"}
    assert words_of("ﬁ１") == {"fi1"}
    assert search_terms(["123456", "12345", "", None]) == {"123456"}


@pytest.mark.parametrize(
    ("text", "found"),
    [("Petrova 1961", True), ("Petrova|196104", False), ("Petrova 11961", False), ("Petrova 1962", False)],
)
def test_message_with_the_year_alone_names_whoever_has_no_more(text, found):
    criteria = PatientCriteria(name="Petrova", birth_date=PartialDate("1961"))
    assert criteria.matches_text(text) is found
    assert criteria.matches(KnownPatient(names=ANNA.names, birth_dates=frozenset({"1961"})))
