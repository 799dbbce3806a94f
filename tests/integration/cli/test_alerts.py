"""`lab-agent alert`: what is wrong, and a test through each channel."""

from __future__ import annotations

import json
import sys

import pytest

from lab_agent.operations.notification.email_channel import EmailChannel
from lab_agent.store.notification_records import Notification
from tests.harness.notifications import LIS_DOWN, NOW, make_alert
from tests.integration.cli.conftest import Cli, LaboratoryFolder

CHANNELS = """
[notify.command.works]
argv = ["{python}", "-c", "import sys; open('told.json', 'w').write(sys.stdin.read())"]
[notify.command.fails]
argv = ["{python}", "-c", "raise SystemExit(4)"]
"""


def open_alerts(lab: LaboratoryFolder) -> None:
    told = Notification(channel="email.it", condition=LIS_DOWN, subject="folder", since=NOW, noticed_at=NOW, told_at=NOW)
    lab.write(lambda uow: uow.alerts.open(make_alert(LIS_DOWN, "folder", detail="the folder is gone")))
    lab.write(lambda uow: uow.alerts.open(make_alert()))
    lab.write(lambda uow: uow.alerts.close(make_alert().key, now=NOW))
    lab.write(lambda uow: uow.notifications.save([told]))


def test_show_says_everything_about_one(cli: Cli, lab: LaboratoryFolder) -> None:
    open_alerts(lab)
    shown = cli("alert", "show", "lis.unavailable/folder").out
    for part in ("the folder is gone", "to do", "told by", "email.it", "affects"):
        assert part in shown
    assert cli("alert", "show", "exchange.unavailable").code == 2
    unknown = cli("alert", "show", "no.such")
    assert (unknown.code, "no condition 'no.such'" in unknown.err) == (2, True)


def test_test_without_channels_says_what_to_do(cli: Cli, lab: LaboratoryFolder) -> None:
    done = cli("alert", "test")
    assert (done.code, "No channel is set" in done.err) == (2, True)


MAIL = """
[notify.email.it]
host = "mail.lab.example"
sender = "agent@lab.example"
recipients = ["it@lab.example"]
user = "{user}"
password = "{password}"
"""


def test_login_that_no_server_takes_is_refused(cli: Cli, lab: LaboratoryFolder) -> None:
    former = lab.config.read_text()
    for field, user, password in (("user", "böse", "x"), ("password", "x", "größe")):
        lab.config.write_text(former + MAIL.format(user=user, password=password))
        done = cli("alert", "test")
        assert (done.code, f"notify.email.it.{field}" in done.err, "ASCII" in done.err) == (1, True, True), done.err
        assert not [each for each in ("böse", "größe") if each in done.err]


def test_test_sends_and_says_what_failed(cli: Cli, lab: LaboratoryFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of one channel is its failure, and the other ones are tested; no internal error is shown."""

    async def stumble(*_: object) -> str:
        raise ZeroDivisionError("secret data")

    lab.config.write_text(lab.config.read_text() + CHANNELS.format(python=sys.executable) + MAIL.format(user="x", password="y"))
    monkeypatch.setattr(EmailChannel, "send", stumble)
    done = cli("alert", "test", "--json")
    results = {row["channel"]: row for row in json.loads(done.out)}
    assert (done.code, results["command.works"]["result"], results["email.it"]["result"]) == (1, "sent", "failed")
    assert "exit code 4" in results["command.fails"]["detail"]
    assert "fault of this program" in results["email.it"]["detail"]
    assert not [each for each in ("Traceback", "ZeroDivisionError", "secret data") if each in done.out + done.err]
    assert json.loads((lab.folder / "told.json").read_text())["kind"] == "test"
    assert cli("alert", "test", "--channel", "command.works").code == 0
    misspelt = cli("alert", "test", "--channel", "command.wrks")
    assert (misspelt.code, "did you mean 'command.works'?" in misspelt.err) == (2, True)
