"""Channels and their policies, as `[notify]` sets them."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta

from lab_agent.operations.notification.channel import Channel
from lab_agent.operations.notification.command import CommandChannel
from lab_agent.operations.notification.email_channel import EmailChannel
from lab_agent.operations.notification.memory import MemoryBook, MemoryNotifier
from lab_agent.operations.notification.notifier import INTERVAL, Notifier
from lab_agent.operations.notification.planning import Policy
from lab_agent.operations.notification.sending import Teller
from lab_agent.operations.notification.webhook import WebhookChannel
from lab_agent.settings.notify import CommandSettings, EmailSettings, NotifySettings
from lab_agent.shared.clock import Clock
from lab_agent.shared.conditions.model import OpenCondition, Severity
from lab_agent.store.queries import Queries
from lab_agent.store.read_models import AffectedNumbers
from lab_agent.store.unit_of_work import Store


def build_channels(settings: NotifySettings, clock: Clock, *, shows_errors: bool = False) -> tuple[Channel, ...]:
    """Build all channels. `shows_errors`: a person watches, and sees what commands write on standard error."""
    found: list[Channel] = []
    for name, each in settings.channels():
        if isinstance(each, EmailSettings):
            found.append(EmailChannel(name, each))
        elif isinstance(each, CommandSettings):
            found.append(CommandChannel(name, each, shows_errors))
        else:
            found.append(WebhookChannel(name, each, clock))
    return tuple(found)


def build_policies(settings: NotifySettings) -> Mapping[str, Policy]:
    """Build the policy of each channel, by its name."""
    return {
        name: Policy(
            severity=Severity(each.severity or settings.severity),
            first_after=timedelta(seconds=settings.first_after),
            ended_after=timedelta(seconds=settings.ended_after),
            remind_every=timedelta(seconds=settings.remind_every),
            at_most=settings.at_most,
        )
        for name, each in settings.channels()
    }


def laboratory_name(settings: NotifySettings) -> str:
    """The name of this installation: as set, else that of the machine."""
    return settings.laboratory or socket.gethostname()


def build_notifier(
    settings: NotifySettings,
    store: Store,
    clock: Clock,
    owner: str,
    *,
    queries: Queries,
    observed: Callable[[], Sequence[OpenCondition]],
    on_look: Callable[[Exception | None], Awaitable[None]],
    book: MemoryBook,
) -> Notifier:
    """Build what tells; `observed` are the conditions that the store cannot hold, and `book` what was told of them."""

    async def count_affected() -> AffectedNumbers:
        return await queries.affected_numbers()

    return Notifier(
        store=store,
        clock=clock,
        owner=owner,
        channels=build_channels(settings, clock),
        policies=build_policies(settings),
        laboratory=laboratory_name(settings),
        link=settings.link,
        observed=observed,
        numbers=count_affected,
        on_look=on_look,
        interval=_interval(settings),
        book=book,
    )


def build_memory_notifier(
    settings: NotifySettings, clock: Clock, observed: Callable[[], Sequence[OpenCondition]], book: MemoryBook
) -> MemoryNotifier:
    """Build what tells while there is no store."""
    teller = Teller(
        channels=build_channels(settings, clock),
        policies=build_policies(settings),
        laboratory=laboratory_name(settings),
        link=settings.link,
        clock=clock,
    )
    return MemoryNotifier(teller, observed, book, _interval(settings))


def _interval(settings: NotifySettings) -> float:
    return min(INTERVAL, settings.first_after, settings.ended_after)
