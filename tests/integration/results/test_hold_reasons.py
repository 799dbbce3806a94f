"""Code decides by the reason of a held report, never by its sentence, whatever names the sentence quotes."""

from __future__ import annotations

import pytest

from lab_agent.domain.report_records import HoldReason
from lab_agent.domain.state_machines import ReportState
from lab_agent.workflow.hold_reasons import held, what_to_do
from tests.harness.results import NOW, ResultsBench, haemoglobin, make_report

PHRASES = (
    "Note which waits for a person",
    "x — no release can send it so",
    "x — it cannot be sent in this form",
    "waits for result P1",
    "a newer version of this report came before it, without",
    "a newer version of this report was delivered without",
)


@pytest.mark.parametrize("phrase", PHRASES)
async def test_observation_named_like_a_sentence_changes_nothing(bench: ResultsBench, phrase: str) -> None:
    """A version that leaves out an observation of such a name is a question, which a release answers."""
    await bench.receive(make_report(haemoglobin("1"), haemoglobin("2", id=phrase), version=1))
    asked = await bench.receive(make_report(haemoglobin("1"), version=2))
    assert asked.hold_reason is HoldReason.QUESTION
    await bench.run_until_idle()
    assert (await bench.get_report("m2")).state is ReportState.HELD, "it does not follow by itself"
    assert (await bench.release(asked)).moved


async def test_many_questions_do_not_change_the_reason(bench: ResultsBench) -> None:
    """However many questions are joined, and whichever the sentence leaves out, a release answers them."""
    names = [haemoglobin("1", id=f"{phrase} {number}") for phrase in PHRASES for number in range(3)]
    await bench.receive(make_report(haemoglobin("1"), *names, version=1, lines=("L0", "L1")))
    asked = await bench.receive(make_report(version=2, lines=("L0",), effective=NOW.replace(year=1026)))
    assert asked.hold_reason is HoldReason.QUESTION
    assert (await bench.release(asked)).moved


@pytest.mark.parametrize("reason", list(HoldReason))
def test_every_reason_has_sentence_and_next_step(reason: HoldReason) -> None:
    hold = held(reason, "the {detail} as it is")
    assert "the {detail} as it is" in hold.text
    assert (hold.state, hold.reason) == (ReportState.HELD, reason)
    assert what_to_do(hold.state, hold.reason)


def test_next_step_only_while_a_report_waits() -> None:
    waiting = {state for state in ReportState if state is not ReportState.HELD and what_to_do(state, None)}
    assert waiting == {ReportState.UNMATCHED, ReportState.UNMAPPED}
