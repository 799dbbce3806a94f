"""A partner's text cannot steer an operator's terminal, whatever command prints it."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

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
    uow.orders.add(
        OrderRecord(
            key=KEY,
            task_id=ResourceId("t1"),
            state=OrderState.HELD,
            seen_at=NOW,
            changed_at=NOW,
            reason=HOSTILE,
            contract=HOSTILE,
            requisition=Identifier(system="urn:clinic", value=HOSTILE),
        )
    )
    uow.events.add(Event(order=KEY, at=NOW, action="held", text=HOSTILE))


@pytest.mark.parametrize("command", [("orders", "list"), ("orders", "show", KEY), ("orders", "show", HOSTILE)])
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_partners_text_is_escaped_on_the_terminal(
    cli: Cli, lab: LaboratoryFolder, command: tuple[str, ...], form: tuple[str, ...]
) -> None:
    lab.write(put_order)
    done = cli(*command, *form)
    shown = done.out + done.err
    assert not FORBIDDEN & set(shown)
    assert "\\u001b" in shown


def test_escaped_json_is_the_same_json(cli: Cli, lab: LaboratoryFolder) -> None:
    lab.write(put_order)
    (found,) = json.loads(cli("orders", "list", "--json").out)
    assert HOSTILE in found.values()
