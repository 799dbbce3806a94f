"""Rules about answers. The questions are those that our own API asks for the same basket."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from lab_agent.catalogue.model import Item, Question, QuestionType
from lab_agent.catalogue.questionnaire import QuestionNode
from lab_agent.fhir.received_order import AnswerValue, patient_key
from lab_agent.rules.context import RuleContext
from lab_agent.rules.rule import Severity, Violation, rule
from lab_agent.shared.values import Coding

_SECTION = "QuestionnaireResponse"


def _questions(context: RuleContext) -> tuple[QuestionNode, ...]:
    """The questions of the basket, without those of tests that are not in the catalogue."""
    return context.catalogue.questions(tuple(items[0] for _, _, items in context.known_lines())) if context.catalogue else ()


def _title(question: Question) -> str:
    return question.text or question.link_id


@rule(
    "questionnaire.unknown",
    Severity.WARN,
    _SECTION,
    "{where}: the tests need answers, and the laboratory cannot see whether there are any. It may ask you for them.",
)
def _check_unknown(context: RuleContext) -> Iterator[Violation]:
    if context.order.responses is None and any(node.required for node in _questions(context)):
        yield Violation("QuestionnaireResponse")


@rule(
    "questionnaire.completed",
    Severity.WARN,
    _SECTION,
    "{where}: the status is {status}, and should be completed. Please send completed answers.",
)
def _check_completed(context: RuleContext) -> Iterator[Violation]:
    for response in context.order.responses or ():
        if response.status != "completed":
            yield Violation(f"{response.where}.status", values={"status": response.status or "missing"})


@rule(
    "questionnaire.source",
    Severity.REFUSE,
    _SECTION,
    "{where}: this is not the order's patient. Please send the answers of the order's patient.",
)
def _check_source(context: RuleContext) -> Iterator[Violation]:
    wanted = context.order.patient_reference
    for response in context.order.responses or ():
        source = response.source
        if wanted and source and not source.is_unusable and patient_key(source) != wanted:
            yield Violation(f"{response.where}.source")


@rule(
    "questionnaire.subject",
    Severity.WARN,
    _SECTION,
    "{where}: this is not a ProcedureRequest of this order. Please refer to one of them.",
)
def _check_subject(context: RuleContext) -> Iterator[Violation]:
    if any(line.request is None for line in context.order.lines):
        return
    requests = {request.ref for _, request in context.lines_with_requests()}
    for response in context.order.responses or () if requests else ():
        if response.subject is None or response.subject.target not in requests:
            yield Violation(f"{response.where}.subject")


def _answers(context: RuleContext) -> Mapping[str | None, list[tuple[str, AnswerValue]]]:
    """The answers by linkId (None for those without one), each with its place."""
    found: dict[str | None, list[tuple[str, AnswerValue]]] = defaultdict(list)
    for response in context.order.responses or ():
        for answer in response.answers:
            found[answer.link_id].extend((answer.where, value) for value in answer.values)
    return found


def _find_missing(context: RuleContext) -> Iterator[tuple[str, Item, Question]]:
    """The lines whose test requires an answer that none of the responses has, each with the question."""
    answered = _answers(context)
    required = {node.question.link_id: node.question for node in _questions(context) if node.required}
    for line, _, items in context.known_lines():
        for asked in items[0].question_refs:
            if asked.required and asked.link_id in required and not answered.get(asked.link_id):
                yield line.id, items[0], required[asked.link_id]


def _may_hide_answers(context: RuleContext) -> bool:
    """Whether there may be answers that we have no right to read: a service leaves these out of a search, often without a word.

    A response that we can read shows that the right was given: then what is not in it was not answered.
    """
    return not context.order.responses or context.order.answers_withheld


@rule(
    "questionnaire.visible",
    Severity.HOLD,
    "Authentication: resource rights",
    "{where}: the tests need answers to {count} questions, and the laboratory sees none of these answers. Please fill in the "
    "questionnaire of the whole basket, and grant the laboratory the right to read the answers.",
    may_refuse=True,
    may_release=True,
    look_at_each=True,
)
def _check_visible(context: RuleContext) -> Iterator[Violation]:
    if context.order.responses is not None and _may_hide_answers(context):
        missing = sorted({question.link_id for _, _, question in _find_missing(context)})
        if missing:
            yield Violation("QuestionnaireResponse", values={"count": str(len(missing))}, evidence=tuple(missing))


@rule(
    "questionnaire.required",
    Severity.REFUSE,
    "Questionnaire: required",
    "{where}: test {code} needs an answer to: {question}. Please fill in the questionnaire of the whole basket.",
)
def _check_required(context: RuleContext) -> Iterator[Violation]:
    if context.order.responses is None or _may_hide_answers(context):
        return
    for line, item, question in _find_missing(context):
        yield Violation(
            f"QuestionnaireResponse.item[{question.link_id}]", (line,), {"question": _title(question), "code": item.id}
        )


@rule(
    "questionnaire.choice",
    Severity.REFUSE,
    "Questionnaire: option",
    "{where}: the answer is not one of the options of: {question}. Please choose one of the options.",
)
def _check_choice(context: RuleContext) -> Iterator[Violation]:
    answered = _answers(context)
    choices = (
        node.question for node in _questions(context) if node.question.type is QuestionType.CHOICE and node.question.options
    )
    for question in choices:
        wrong = (where for where, value in answered.get(question.link_id, ()) if not _is_option(question, value))
        yield from (Violation(where, _lines_asking(context, question), {"question": _title(question)}) for where in wrong)


def _lines_asking(context: RuleContext, question: Question) -> tuple[str, ...]:
    """The lines whose test asks the question: only they are rejected for a wrong answer."""
    link_id = question.link_id
    return tuple(
        line.id for line, _, items in context.known_lines() if any(each.link_id == link_id for each in items[0].question_refs)
    )


def _is_option(question: Question, value: AnswerValue) -> bool:
    if not isinstance(value, Coding):
        return str(value) in {option.code for option in question.options}
    return any(option.code == value.code and value.system in {None, option.system} for option in question.options)


@rule(
    "questionnaire.once",
    Severity.WARN,
    "Questionnaire: repeats",
    "{where}: there are different answers to: {question}. Please send only one.",
)
def _check_once(context: RuleContext) -> Iterator[Violation]:
    answered = _answers(context)
    for node in _questions(context):
        values = answered.get(node.question.link_id, [])
        if not node.question.repeats and len({repr(value) for _, value in values}) > 1:
            yield Violation(values[-1][0], values={"question": _title(node.question)})
