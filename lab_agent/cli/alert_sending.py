"""`lab-agent alert test`: a real test message through each channel, and what happened to it."""

from __future__ import annotations

import asyncio
import traceback
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer
from pydantic import Field
from typing_extensions import override

from lab_agent.cli.context import ConfigOption, JsonOption
from lab_agent.cli.output import print_error, print_list
from lab_agent.operations.notification.building import build_channels, laboratory_name
from lab_agent.operations.notification.channel import Channel, NotificationNotSent
from lab_agent.operations.notification.message import Message
from lab_agent.settings.groups import SettingsGroup
from lab_agent.settings.notify import NotifySettings
from lab_agent.settings.root import load_groups
from lab_agent.shared.clock import Clock
from lab_agent.shared.errors import InputError, did_you_mean


class _NotifyGroups(SettingsGroup):
    notify: NotifySettings = Field(default_factory=NotifySettings)


class _MachineClock(Clock):
    @override
    def now(self) -> datetime:
        return datetime.now(UTC)


def send_test(
    config: ConfigOption = None,
    channel: Annotated[
        list[str] | None, typer.Option("--channel", metavar="NAME", help="Only this channel, such as email.it; may be repeated.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Send a test through each notification channel, and say what happened. Exit code 1 if one fails."""
    settings = load_groups(_NotifyGroups, config).notify
    channels = _choose(build_channels(settings, _MachineClock(), shows_errors=True), channel or ())
    results = asyncio.run(_send_all(settings, channels))
    rows = [
        {"channel": each.name, "result": "failed" if failed else "sent", "detail": detail}
        for each, (failed, detail) in zip(channels, results, strict=True)
    ]
    print_list(rows, as_json=as_json, empty_text="")
    if any(failed for failed, _ in results):
        if not as_json:
            print_error("Correct [notify.<channel>] in the settings, and test it again; nothing has to be restarted for that.")
        raise typer.Exit(1)


def _choose(channels: Sequence[Channel], wanted: Sequence[str]) -> list[Channel]:
    names = [each.name for each in channels]
    if not names:
        raise InputError("No channel is set: add a table such as [notify.email.it] to the settings (docs/notifications.md).")
    for name in wanted:
        if name not in names:
            hint = did_you_mean(name, names) or f"set are {', '.join(names)}"
            raise InputError(f"There is no channel {name!r}; {hint}")
    return [each for each in channels if not wanted or each.name in wanted]


async def _send_all(settings: NotifySettings, channels: Sequence[Channel]) -> list[tuple[bool, str]]:
    message = Message(id=uuid.uuid4().hex, laboratory=laboratory_name(settings), at=_MachineClock().now(), link=settings.link)
    return list(await asyncio.gather(*(_send_one(each, message) for each in channels)))


async def _send_one(channel: Channel, message: Message) -> tuple[bool, str]:
    """Whether it failed, or reached some of its recipients only, and why."""
    try:
        problem = await channel.send(message)
    except NotificationNotSent as exc:
        return True, str(exc)
    except Exception as exc:  # noqa: BLE001 - boundary: the others are tested all the same, and no data gets on the screen
        place = traceback.extract_tb(exc.__traceback__)[-1]
        return True, f"a fault of this program, at {place.filename}:{place.lineno}; please report it"
    return bool(problem), problem
