"""What was sent and answered outlives the process; what is damaged or foreign leaves the outcome unknown, never wrong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab_agent.lis.hl7v2.acks import Ack
from lab_agent.lis.hl7v2.orders.sent_messages import SentMessage, SentMessageLog
from lab_agent.shared.ids import LineKey, OrderKey

ORDER, LINE = OrderKey("RAAAAAAAAAAAAAAA"), LineKey("LAAAAAAAAAAAAAAA")


@pytest.fixture
def sent(tmp_path: Path) -> SentMessageLog:
    log = SentMessageLog(tmp_path, keep_days=30)
    log.open()
    log.plan(ORDER, [ORDER])
    return log


def recorded(sent: SentMessageLog) -> SentMessage:
    message = sent.message(ORDER)
    assert message is not None
    return message


def test_yes_to_any_attempt_counts_else_the_last_answer(sent: SentMessageLog) -> None:
    for suffix in ("2222", "3333"):
        sent.record_attempt(ORDER, ORDER, [LINE], ORDER + suffix)
    sent.record_answer(Ack("AE", ORDER + "2222"), accepted=False)
    assert recorded(sent).answer is None
    sent.record_answer(Ack("AA", ORDER + "2222", orders=("X",)), accepted=True)
    sent.record_answer(Ack("AE", ORDER + "3333"), accepted=False)
    assert recorded(sent).is_accepted


def test_repeat_under_one_id_forgets_a_no_and_keeps_a_yes(sent: SentMessageLog) -> None:
    sent.record_attempt(ORDER, ORDER, [LINE], ORDER)
    sent.record_answer(Ack("AE", ORDER), accepted=False)
    sent.record_attempt(ORDER, ORDER, [LINE], ORDER)
    assert recorded(sent).answer is None
    sent.record_answer(Ack("AA", ORDER), accepted=True)
    sent.record_attempt(ORDER, ORDER, [LINE], ORDER)
    assert recorded(sent).is_accepted


@pytest.mark.parametrize("control_id", ["", "X", "RBBBBBBBBBBBBBBB", ORDER + "9999", "../" + ORDER, "R" + "\0" * 15])
def test_foreign_answer_is_nobodys(sent: SentMessageLog, control_id: str) -> None:
    sent.record_attempt(ORDER, ORDER, [LINE], ORDER)
    assert sent.record_answer(Ack("AA", control_id), accepted=True) is None
    assert recorded(sent).answer is None


def test_damaged_file_counts_as_unanswered_and_old_ones_are_deleted(sent: SentMessageLog, tmp_path: Path) -> None:
    sent.record_attempt(ORDER, ORDER, [LINE], ORDER)
    [path] = (tmp_path / "sent").glob("*.message.json")
    path.write_bytes(b"{")
    assert recorded(sent).answer is None
    for each in (tmp_path / "sent").iterdir():
        os.utime(each, (0, 0))
    sent.purge()
    assert sent.messages(ORDER) is None


@pytest.mark.parametrize(
    ("orders", "unnamed"),
    [((), ()), (("a", "b"), ()), (("a",), ("b",)), (("",), ("a", "b")), (("x", "y"), ()), (("x", "b"), ("a",))],
)
def test_lines_that_an_answer_passes_over(orders: tuple[str, ...], unnamed: tuple[str, ...]) -> None:
    assert Ack("AA", "1", orders=orders).unnamed_lines(("a", "b")) == unnamed
