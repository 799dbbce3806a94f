"""Rules about answers: the questions are the same fold that our API gives for this basket."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from lab_agent.catalogue.items import Question, QuestionType
from lab_agent.catalogue.questionnaire import Node
from lab_agent.domain.received import AnswerValue, subject_key
from lab_agent.domain.values import Coding
from lab_agent.rules.case import Case
from lab_agent.rules.rule import Problem, Rule, Severity


def _questions(case: Case) -> tuple[Node, ...]:
    """The questions of the basket; those of tests that we do not know are not asked."""
    return case.catalogue.questions(tuple(items[0] for _, _, items in case.known_lines())) if case.catalogue else ()


def _unknown(case: Case) -> Iterator[Problem]:
    if case.order.responses is None and any(node.required for node in _questions(case)):
        yield Problem("QuestionnaireResponse")


def _completed(case: Case) -> Iterator[Problem]:
    for response in case.order.responses or ():
        if response.status != "completed":
            yield Problem(f"{response.where}.status", values={"status": response.status or "missing"})


def _source(case: Case) -> Iterator[Problem]:
    wanted = case.order.patient_reference
    for response in case.order.responses or ():
        if wanted and response.source and subject_key(response.source) != wanted:
            yield Problem(f"{response.where}.source")


def _subject(case: Case) -> Iterator[Problem]:
    if any(line.request is None for line in case.order.lines):
        return
    requests = {request.ref for _, request in case.lines()}
    for response in case.order.responses or () if requests else ():
        if response.subject is None or response.subject.target not in requests:
            yield Problem(f"{response.where}.subject")


def _answers(case: Case) -> dict[str, list[tuple[str, AnswerValue]]]:
    found: dict[str, list[tuple[str, AnswerValue]]] = defaultdict(list)
    for response in case.order.responses or ():
        for answer in response.answers:
            found[answer.link_id or ""].extend((answer.where, value) for value in answer.values)
    return found


def _required(case: Case) -> Iterator[Problem]:
    """The lines that ask a required question which nobody answered."""
    if case.order.responses is None:
        return
    answered = _answers(case)
    missing = {node.question.link_id: node.question for node in _questions(case) if node.required}
    for line, _, items in case.known_lines():
        for asked in items[0].asked:
            if asked.required and asked.link_id in missing and not answered.get(asked.link_id):
                values = {"question": missing[asked.link_id].text or asked.link_id, "code": items[0].id}
                yield Problem(f"QuestionnaireResponse.item[{asked.link_id}]", (line.id,), values)


def _choice(case: Case) -> Iterator[Problem]:
    answered = _answers(case)
    for node in _questions(case):
        if node.question.type is QuestionType.CHOICE and node.question.options:
            for where, value in answered.get(node.question.link_id, ()):
                if not _is_option(node.question, value):
                    asking = tuple(line.id for line, _, items in case.known_lines() if _asks(items[0].asked, node))
                    yield Problem(where, asking, {"question": node.question.text or node.question.link_id})


def _asks(asked: tuple[object, ...], node: Node) -> bool:
    return any(getattr(each, "link_id", None) == node.question.link_id for each in asked)


def _is_option(question: Question, value: AnswerValue) -> bool:
    if not isinstance(value, Coding):
        return str(value) in {option.code for option in question.options}
    return any(option.code == value.code and value.system in {None, option.system} for option in question.options)


def _once(case: Case) -> Iterator[Problem]:
    answered = _answers(case)
    for node in _questions(case):
        values = answered.get(node.question.link_id, [])
        if not node.question.repeats and len({repr(value) for _, value in values}) > 1:
            yield Problem(values[-1][0], values={"question": node.question.text or node.question.link_id})


_SECTION = "QuestionnaireResponse"
RULES = (
    Rule(
        id="questionnaire.unknown",
        severity=Severity.WARN,
        section=_SECTION,
        check=_unknown,
        message="{where}: the tests need answers, and it is not known here whether there are any. The laboratory may ask.",
    ),
    Rule(
        id="questionnaire.completed",
        severity=Severity.WARN,
        section=_SECTION,
        check=_completed,
        message="{where}: is {status}, and should be completed. Send completed answers.",
    ),
    Rule(
        id="questionnaire.source",
        severity=Severity.REFUSE,
        section=_SECTION,
        check=_source,
        message="{where}: is another patient than the order's. Send the answers of the order's patient.",
    ),
    Rule(
        id="questionnaire.subject",
        severity=Severity.WARN,
        section=_SECTION,
        check=_subject,
        message="{where}: is not a ProcedureRequest of this order. Send the reference of one of them.",
    ),
    Rule(
        id="questionnaire.required",
        severity=Severity.REFUSE,
        section="Questionnaire: required",
        check=_required,
        message="{where}: test {code} needs an answer to: {question}. Fill in the questionnaire of the whole basket.",
    ),
    Rule(
        id="questionnaire.choice",
        severity=Severity.REFUSE,
        section="Questionnaire: option",
        check=_choice,
        message="{where}: the answer is not one of the options of: {question}. Choose one of the options.",
    ),
    Rule(
        id="questionnaire.once",
        severity=Severity.WARN,
        section="Questionnaire: repeats",
        check=_once,
        message="{where}: there are different answers to: {question}. Send one.",
    ),
)
