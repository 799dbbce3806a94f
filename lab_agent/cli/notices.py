"""`lab-agent eta …`: stops and delays tests at once; partners see it with their next request."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated

import typer

from lab_agent.catalogue import notices
from lab_agent.catalogue.notices import (
    ActiveNotice,
    Announcement,
    NoticeBoard,
    NoticeOverview,
    TestStatus,
    announce,
    load_staleness_warning,
)
from lab_agent.catalogue.notices import lift_notices as clear_notices
from lab_agent.catalogue.records import TurnaroundNotice
from lab_agent.cli.columns import choose_columns
from lab_agent.cli.context import (
    ByOption,
    ColumnsOption,
    CommandContext,
    ConfigOption,
    JsonOption,
    WideOption,
    operator_name,
    run_with_store,
)
from lab_agent.cli.output import Row, print_error, print_json, print_line, print_list
from lab_agent.shared.errors import DataInvalidError, Problem
from lab_agent.shared.values import to_local

app = typer.Typer(help="Tests that are temporarily stopped or delayed.", no_args_is_help=True)
ItemArgument = Annotated[str, typer.Argument(metavar="ITEM", help="Code of the test.")]
UntilOption = Annotated[str, typer.Option("--until", help="End: 2026-11-20T08:00+03:00, 2026-11-20 (midnight), 12h or 3d.")]
FromOption = Annotated[str | None, typer.Option("--from", help="Start, in the same formats. Default: now.")]
ContractOption = Annotated[str | None, typer.Option("--contract", help="Only for this contract. Default: all contracts.")]
CaptionOption = Annotated[str, typer.Option("--caption", help="Text that partners see. Default: a standard text.")]


@app.command()
def stop(
    item: ItemArgument,
    until: UntilOption,
    config: ConfigOption = None,
    since: FromOption = None,
    contract: ContractOption = None,
    caption: CaptionOption = "",
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Announce that a test is temporarily not performed."""

    async def work(context: CommandContext) -> tuple[TurnaroundNotice, NoticeOverview]:
        return await _announce(context, by, _build_announcement(item, contract, caption, since, until, context.now))

    _print_notice(*run_with_store(config, work), "stopped", as_json=as_json)


@app.command()
def delay(  # noqa: PLR0913, PLR0917 - each is an option of the command
    item: ItemArgument,
    hours: Annotated[str, typer.Option("--hours", help="Delay in hours.")],
    until: UntilOption,
    config: ConfigOption = None,
    since: FromOption = None,
    contract: ContractOption = None,
    caption: CaptionOption = "",
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Announce that a test temporarily takes longer."""

    async def work(context: CommandContext) -> tuple[TurnaroundNotice, NoticeOverview]:
        return await _announce(
            context,
            by,
            _build_announcement(item, contract, caption, since, until, context.now, notices.parse_hours("--hours", hours)),
        )

    _print_notice(*run_with_store(config, work), f"delayed by {hours} hours", as_json=as_json)


@app.command()
def clear(item: ItemArgument, config: ConfigOption = None, contract: ContractOption = None, by: ByOption = None) -> None:
    """Lift the notices of a test made by `stop` and `delay`, and show what still applies, such as the sheet notices."""

    async def work(context: CommandContext) -> tuple[int, NoticeOverview]:
        lifted = await clear_notices(context.store, item, contract, by=operator_name(by), now=context.now)
        return lifted, await NoticeBoard(context.store).load_overview(context.now)

    lifted, seen = run_with_store(config, work)
    status = seen.test_status(item, contract)
    if not lifted:
        hint = "; ".join(_remaining_sentences(status)) or "run `lab-agent eta list` to see the notices"
        raise DataInvalidError((Problem(item, "has no notice to lift", hint),))
    if seen.staleness_warning:
        print_error(seen.staleness_warning)
    print_line(_lifted_sentence(item, contract, status))
    for sentence in _remaining_sentences(status):
        print_line(sentence)


_COLUMNS = ("item", "status", "contract", "until", "from", "by", "caption")


@app.command("list")
def list_notices(
    config: ConfigOption = None, columns: ColumnsOption = None, wide: WideOption = False, as_json: JsonOption = False
) -> None:
    """List current and future notices, including those of the catalogue's sheet notices."""
    chosen = choose_columns(_COLUMNS, columns, wide=wide)

    async def work(context: CommandContext) -> NoticeOverview:
        return await NoticeBoard(context.store).load_overview(context.now)

    seen = run_with_store(config, work)
    if seen.staleness_warning:
        print_error(seen.staleness_warning)
    empty_text = (
        "Nothing is stopped or delayed." if seen.staleness_warning is None else "Nothing is known to be stopped or delayed."
    )
    print_list([_notice_row(each) for each in seen.notices], as_json=as_json, columns=chosen, empty_text=empty_text)


async def _announce(
    context: CommandContext, by: str | None, announcement: Announcement
) -> tuple[TurnaroundNotice, NoticeOverview]:
    if warning := await load_staleness_warning(context.store):
        print_error(warning)
    notice = await announce(context.store, announcement, by=operator_name(by), now=context.now)
    return notice, await NoticeBoard(context.store).load_overview(context.now)


def _build_announcement(
    item: str,
    contract: str | None,
    caption: str,
    since: str | None,
    until: str,
    now: datetime,
    hours: Decimal | None = None,
) -> Announcement:
    start, end = now if since is None else notices.parse_time("--from", since, now), notices.parse_time("--until", until, now)
    return Announcement(item=item, start=start, end=end, contract=contract, delay_hours=hours, caption=caption)


def _print_notice(notice: TurnaroundNotice, overview: NoticeOverview, status_text: str, *, as_json: bool) -> None:
    if as_json:
        print_json(notice)
        return
    where = f" for {notice.contract}" if notice.contract else ""
    print_line(f"{notice.item} is {status_text}{where} from {_format_time(notice.start)} until {_format_time(notice.end)}.")
    for sentence in _remaining_sentences(overview.overriding(notice)):
        print_line(sentence)


def _lifted_sentence(item: str, contract: str | None, status: TestStatus) -> str:
    """The first sentence after a lift: where the test has no restriction any more."""
    normal = [code for code, each in status.current.items() if each is None]
    if normal and status.is_normal:
        return f"Notice lifted: {item} has no restriction{_in_contract(contract)} any more."
    lifted = f"Notice for {item}{_in_contract(contract)} lifted"
    return f"{lifted}; no restriction any more in {', '.join(normal)}." if normal else f"{lifted}."


def _remaining_sentences(status: TestStatus) -> list[str]:
    """A sentence for each notice that applies now, with its contracts, and for each other one."""
    applying = {each: [code for code, one in status.current.items() if one is each] for each in status.current.values() if each}
    still = [
        f"{each.item} is still {_format_status(each)} in {', '.join(codes)} until {_format_time(each.end)}: {_reason(each)}"
        for each, codes in applying.items()
    ]
    others = [
        f"Also: {_format_status(each)}{_in_contract(each.contract)} "
        f"from {_format_time(each.start)} until {_format_time(each.end)}: {_reason(each)}"
        for each in status.other_notices
    ]
    return still + others


def _reason(notice: ActiveNotice) -> str:
    if notice.sheet:
        return "set in the catalogue's sheet notices; change it there and import it."
    by, where = f" by {notice.by}" if notice.by else "", notice.contract or "every contract"
    option = f" --contract {notice.contract}" if notice.contract else ""
    return f"announced{by} for {where}; run `lab-agent eta clear {notice.item}{option}` to lift it."


def _in_contract(contract: str | None) -> str:
    return f" in {contract}" if contract else ""


def _format_time(time: datetime) -> str:
    return to_local(time).isoformat(" ", "minutes")


def _format_status(notice: ActiveNotice) -> str:
    return "stopped" if notice.delay_hours is None else f"delayed by {notice.delay_hours} h"


def _notice_row(notice: ActiveNotice) -> Row:
    return {
        "item": notice.item,
        "contract": notice.contract or "(all)",
        "status": _format_status(notice),
        "from": notice.start,
        "until": notice.end,
        "by": "(sheet notices)" if notice.sheet else notice.by,
        "caption": notice.caption,
    }
