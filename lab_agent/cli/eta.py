"""`lab-agent eta …`: stop and delay tests at once; the partners see it with their next request."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated

import typer

from lab_agent.catalogues import spoken
from lab_agent.catalogues.notices import Announcement, announce, doubt, standing
from lab_agent.catalogues.notices import clear as clear_notices
from lab_agent.cli.opened import Opened, with_store
from lab_agent.cli.options import AsJson, Config, decider
from lab_agent.cli.shown import Row, complain, say, show_json, show_list
from lab_agent.domain.offer import EtaNotice
from lab_agent.errors import DataInvalidError, Problem

app = typer.Typer(help="Tests that are stopped or delayed for a time.", no_args_is_help=True)
Item = Annotated[str, typer.Argument(metavar="ITEM", help="Code of the test.")]
Until = Annotated[str, typer.Option("--until", help="Its end: 2026-11-20T08:00+03:00, 2026-11-20 (midnight), 12h or 3d.")]
From = Annotated[str | None, typer.Option("--from", help="Its beginning, in the same forms; by default now.")]
Contract = Annotated[str | None, typer.Option("--contract", help="For this contract alone; by default for every one.")]
Caption = Annotated[str, typer.Option("--caption", help="Sentence that the partners see; by default the usual one.")]


@app.command()
def stop(
    item: Item,
    until: Until,
    config: Config = None,
    since: From = None,
    contract: Contract = None,
    caption: Caption = "",
    as_json: AsJson = False,
) -> None:
    """Say that a test is not performed for a time."""

    async def work(opened: Opened) -> EtaNotice:
        return await _announced(opened, _said(item, contract, caption, since, until, opened.now))

    _told(with_store(config, work), "stopped", as_json=as_json)


@app.command()
def delay(
    item: Item,
    hours: Annotated[str, typer.Option("--hours", help="How many hours longer it takes.")],
    until: Until,
    config: Config = None,
    since: From = None,
    contract: Contract = None,
    caption: Caption = "",
    as_json: AsJson = False,
) -> None:
    """Say that a test takes longer for a time."""

    async def work(opened: Opened) -> EtaNotice:
        return await _announced(opened, _said(item, contract, caption, since, until, opened.now, spoken.hours("--hours", hours)))

    _told(with_store(config, work), f"delayed by {hours} hours", as_json=as_json)


@app.command()
def clear(item: Item, config: Config = None, contract: Contract = None) -> None:
    """Lift what was said about a test with `stop` and `delay`. What the sheet notices of the catalogue says stays."""

    async def work(opened: Opened) -> int:
        return await clear_notices(opened.store, item, contract, now=opened.now)

    if not with_store(config, work):
        raise DataInvalidError((Problem(item, "has no notice that could be lifted", "see them: lab-agent eta list"),))
    say(f"{item} is as usual again.")


@app.command("list")
def list_(config: Config = None, as_json: AsJson = False) -> None:
    """List the notices in force and to come."""

    async def work(opened: Opened) -> tuple[EtaNotice, ...]:
        return await standing(opened.store, opened.now)

    notices = with_store(config, work)
    show_list([_row(each) for each in notices], as_json=as_json, nothing="Nothing is stopped or delayed.", full=notices)


async def _announced(opened: Opened, said: Announcement) -> EtaNotice:
    if doubtful := await doubt(opened.store):
        complain(doubtful)
    return await announce(opened.store, said, by=decider(None), now=opened.now)


def _said(
    item: str,
    contract: str | None,
    caption: str,
    since: str | None,
    until: str,
    now: datetime,
    hours: Decimal | None = None,
) -> Announcement:
    start, end = now if since is None else spoken.moment("--from", since, now), spoken.moment("--until", until, now)
    return Announcement(item=item, start=start, end=end, contract=contract, delay_hours=hours, caption=caption)


def _told(notice: EtaNotice, what: str, *, as_json: bool) -> None:
    if as_json:
        show_json(notice)
        return
    where = f" for {notice.contract}" if notice.contract else ""
    start, end = (each.astimezone().isoformat(" ", "minutes") for each in (notice.start, notice.end))
    say(f"{notice.item} is {what}{where} from {start} until {end}.")


def _row(notice: EtaNotice) -> Row:
    status = "stopped" if notice.delay_hours is None else f"delayed by {notice.delay_hours} h"
    contract = notice.contract or "(all)"
    return {
        "item": notice.item,
        "contract": contract,
        "status": status,
        "from": notice.start,
        "until": notice.end,
        "by": notice.by,
    }
