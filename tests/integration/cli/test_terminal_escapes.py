"""A partner's text cannot steer an operator's terminal, whatever command prints it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

from lab_agent.domain.ids import OrderKey, ResourceId
from lab_agent.domain.records import Event, OrderRecord
from lab_agent.domain.state_machines import OrderState
from lab_agent.domain.values import Identifier
from lab_agent.ports.repositories import UnitOfWork
from tests.integration.cli.conftest import Cli, LaboratoryFolder

KEY = OrderKey("RESCAPES00000001")
NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
HOSTILE = "a\x1b[2Jb\x1b]0;title\x07c\x9b31md\u202egnp\u2066e\rf\u2028"
FORBIDDEN = set("\x1b\x07\x9b\u202e\u2066\r\u2028")


def put_order(uow: UnitOfWork) -> None:
    order = OrderRecord(key=KEY, task_id=ResourceId("t1"), state=OrderState.HELD, seen_at=NOW, changed_at=NOW)
    number = Identifier(system="urn:clinic", value=HOSTILE)
    uow.orders.add(replace(order, reason=HOSTILE, contract=HOSTILE, requisition=number))
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
