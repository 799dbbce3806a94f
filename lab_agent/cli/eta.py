"""`lab-agent eta …`: stop and delay tests at once; the partners see it with their next request."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated

import typer

from lab_agent.catalogues import spoken
from lab_agent.catalogues.board import Board, Outlook, Seen, Standing
from lab_agent.catalogues.notices import Announcement, announce, doubt
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

    async def work(opened: Opened) -> tuple[EtaNotice, Seen]:
        return await _announced(opened, _said(item, contract, caption, since, until, opened.now))

    _told(*with_store(config, work), "stopped", as_json=as_json)


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

    async def work(opened: Opened) -> tuple[EtaNotice, Seen]:
        return await _announced(opened, _said(item, contract, caption, since, until, opened.now, spoken.hours("--hours", hours)))

    _told(*with_store(config, work), f"delayed by {hours} hours", as_json=as_json)


@app.command()
def clear(item: Item, config: Config = None, contract: Contract = None) -> None:
    """Lift what was said about a test with `stop` and `delay`, and say what still holds, as the sheet notices does."""

    async def work(opened: Opened) -> tuple[int, Seen]:
        lifted = await clear_notices(opened.store, item, contract, now=opened.now)
        return lifted, await Board(opened.store).look(opened.now)

    lifted, seen = with_store(config, work)
    outlook = seen.outlook(item, contract)
    if not lifted:
        mend = "; ".join(_holding(outlook)) or "see them: lab-agent eta list"
        raise DataInvalidError((Problem(item, "has no notice that could be lifted", mend),))
    if seen.doubt:
        complain(seen.doubt)
    say(_lifted(item, contract, outlook))
    for sentence in _holding(outlook):
        say(sentence)


@app.command("list")
def list_(config: Config = None, as_json: AsJson = False) -> None:
    """List the notices in force and to come, those of the sheet notices of the catalogue too."""

    async def work(opened: Opened) -> Seen:
        return await Board(opened.store).look(opened.now)

    seen = with_store(config, work)
    if seen.doubt:
        complain(seen.doubt)
    nothing = "Nothing is stopped or delayed." if seen.doubt is None else "Nothing is stopped or delayed as far as is known."
    rows, full = [_row(each) for each in seen.notices], [_full(each) for each in seen.notices]
    show_list(rows, as_json=as_json, nothing=nothing, full=full)


async def _announced(opened: Opened, said: Announcement) -> tuple[EtaNotice, Seen]:
    if doubtful := await doubt(opened.store):
        complain(doubtful)
    notice = await announce(opened.store, said, by=decider(None), now=opened.now)
    return notice, await Board(opened.store).look(opened.now)


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


def _told(notice: EtaNotice, seen: Seen, what: str, *, as_json: bool) -> None:
    if as_json:
        show_json(notice)
        return
    where = f" for {notice.contract}" if notice.contract else ""
    say(f"{notice.item} is {what}{where} from {_moment(notice.start)} until {_moment(notice.end)}.")
    for sentence in _holding(seen.outweighing(notice)):
        say(sentence)


def _lifted(item: str, contract: str | None, outlook: Outlook) -> str:
    """The first sentence after a lift: where the test is as usual now."""
    usual = [code for code, each in outlook.now.items() if each is None]
    if usual and outlook.usual:
        return f"{item} is as usual again{f' in {contract}' if contract else ''}."
    lifted = f"What was announced for {item}{f' in {contract}' if contract else ''} is lifted"
    return f"{lifted}; it is as usual in {', '.join(usual)}." if usual else f"{lifted}."


def _holding(outlook: Outlook) -> list[str]:
    """A sentence for each notice that decides now, with its contracts, and for each other one."""
    deciding = {each: [code for code, one in outlook.now.items() if one is each] for each in outlook.now.values() if each}
    still = [
        f"{each.item} is still {_status(each)} in {', '.join(where)} until {_moment(each.end)}: {_why(each)}"
        for each, where in deciding.items()
    ]
    besides = [
        f"Besides: {_status(each)}{f' in {each.contract}' if each.contract else ''} "
        f"from {_moment(each.start)} until {_moment(each.end)}: {_why(each)}"
        for each in outlook.besides
    ]
    return still + besides


def _why(each: Standing) -> str:
    if each.sheet:
        return "so says the sheet notices of the catalogue; change it there, and import it."
    by, where = f" by {each.by}" if each.by else "", each.contract or "every contract"
    option = f" --contract {each.contract}" if each.contract else ""
    return f"so it was announced{by} for {where}; lift it: lab-agent eta clear {each.item}{option}"


def _moment(moment: datetime) -> str:
    return moment.astimezone().isoformat(" ", "minutes")


def _status(each: Standing) -> str:
    return "stopped" if each.delay_hours is None else f"delayed by {each.delay_hours} h"


def _row(each: Standing) -> Row:
    return {
        "item": each.item,
        "contract": each.contract or "(all)",
        "status": _status(each),
        "from": each.start,
        "until": each.end,
        "by": "(sheet notices)" if each.sheet else each.by,
    }


def _full(each: Standing) -> Row:
    names = ("item", "contract", "start", "end", "delay_hours", "caption", "sheet", "made_at", "by")
    return {name: getattr(each, name) for name in names}
