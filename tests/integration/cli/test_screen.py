"""What a terminal shows: lists of any width, escapes, and the progress of what takes long."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from lab_agent.shared.ids import OrderKey
from lab_agent.shared.state_machines import OrderState
from lab_agent.shared.values import Identifier
from lab_agent.store.event_records import Event
from lab_agent.store.unit_of_work import UnitOfWork
from tests.harness.pseudo_terminal import run_at_terminal
from tests.integration.cli.conftest import Cli, LaboratoryFolder, make_order

KEY = OrderKey("OABCDEFGHIJKLMNOPQRSTUVWXYZ234567")
NOW = datetime(2026, 3, 1, 9, tzinfo=UTC)
REASON = "the order names a contract that the settings do not have, so nothing can be said of it before somebody has looked"
LISTS = (
    *("orders list", "results list", "results orphans", "results refused list", "outbox list", "adapter list", "rules"),
    *("eta list", "api-token list", "user list", "mappings release", "backup --list --folder ."),
)


@pytest.fixture
def held(lab: LaboratoryFolder) -> LaboratoryFolder:
    held = {"held_since": NOW, "hold_cause": "contract.known", "reason": REASON}
    order = make_order(KEY, task_id="t1", state=OrderState.HELD, contract="C-100", **held)
    lab.write(lambda uow: uow.orders.add(order))
    return lab


@pytest.mark.slow
def test_terminal_of_any_width_keeps_keys_whole(held: LaboratoryFolder) -> None:
    widths = []
    for columns in (60, 80, 200):
        shown = run_at_terminal("orders", "list", columns=columns)
        assert sum(line.startswith(KEY) for line in shown.lines) == 1
        assert max(map(len, shown.lines)) <= columns
        widths.append(len(shown.lines[0].split()))
        assert columns == 200 or (shown.err.count("columns left out: "), "waiting" in shown.err) == (1, True)
    assert widths[2] > widths[1]
    for shown in (run_at_terminal("orders", "list", columns=300), run_at_terminal("orders", "list", "--wide", columns=60)):
        assert (len(shown.lines), "columns left out" in shown.err, REASON in shown.lines[1]) == (2, False, True)


def test_every_list_names_its_columns(lab: LaboratoryFolder, cli: Cli) -> None:
    for words in LISTS:
        done = cli(*words.split(), "--columns", "no-such")
        assert (done.code, "no column 'no-such'" in done.err, "the columns are " in done.err) == (2, True, True), words
        assert cli(*words.split(), "--wide").code == 0, words


HOSTILE = "a\x1b[2Jb\x1b]0;title\x07c\x9b31md\u202egnp\u2066e\rf\u2028"
FORBIDDEN = set("\x1b\x07\x9b\u202e\u2066\r\u2028")


def put_order(uow: UnitOfWork) -> None:
    number = Identifier(system="urn:clinic", value=HOSTILE)
    uow.orders.add(make_order(KEY, state=OrderState.HELD, reason=HOSTILE, contract=HOSTILE, requisition=number))
    uow.events.add(Event(order=KEY, at=NOW, action="held", text=HOSTILE))


def test_partners_text_is_escaped_on_the_terminal(cli: Cli, lab: LaboratoryFolder) -> None:
    lab.write(put_order)
    for command in (("orders", "list"), ("orders", "show", KEY), ("orders", "show", HOSTILE)):
        for form in ((), ("--json",)):
            done = cli(*command, *form)
            shown = done.out + done.err
            assert not FORBIDDEN & set(shown), command
            assert "\\u001b" in shown, command
    (found,) = json.loads(cli("orders", "list", "--json").out)
    assert HOSTILE in found.values()
