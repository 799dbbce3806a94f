"""`lab-agent results refused …`: messages that adapters could not read: list, show, replay after the map was mended, dismiss."""

from __future__ import annotations

from typing import Annotated

import typer

from lab_agent import bootstrap, result_bootstrap
from lab_agent.cli.columns import choose_columns
from lab_agent.cli.context import (
    ByOption,
    ColumnsOption,
    CommandContext,
    ConfigOption,
    JsonOption,
    LimitOption,
    OffsetOption,
    WideOption,
    operator_name,
    run_with_store,
)
from lab_agent.cli.output import Row, print_fields, print_heading, print_json, print_line, print_list, print_raw, print_remaining
from lab_agent.lis.laboratory_system import MapSuggestion
from lab_agent.results.refused_message_actions import Preview, PreviewedPart, RefusedMessageDesk, ReplayOutcome, describe_content
from lab_agent.results.refused_messages import list_refused_messages
from lab_agent.results.refused_records import RefusedContent, RefusedMessage, RefusedState, raw_lines
from lab_agent.shared.errors import Failure, InputError, InvalidTransitionError, StoreError
from lab_agent.shared.ids import RefusedKey
from lab_agent.store.event_records import Event
from lab_agent.store.read_models import DEFAULT_PAGE_SIZE, Page

app = typer.Typer(help="Messages of laboratory systems that were refused because they could not be read.", no_args_is_help=True)
KeyArgument = Annotated[str, typer.Argument(metavar="MESSAGE", help="Key of the message, as `results refused list` shows it.")]
AdapterOption = Annotated[str | None, typer.Option("--adapter", metavar="NAME", help="Only those of this laboratory system.")]
_COLUMNS = ("message", "state", "reason", "from", "last", "times", "kept", "first", "size")


@app.command("list")
def list_refused(
    config: ConfigOption = None,
    adapter: AdapterOption = None,
    state: Annotated[list[RefusedState] | None, typer.Option("--state", help="Only in this state. Default: waiting.")] = None,
    limit: LimitOption = DEFAULT_PAGE_SIZE,
    offset: OffsetOption = 0,
    columns: ColumnsOption = None,
    wide: WideOption = False,
    as_json: JsonOption = False,
) -> None:
    """List refused messages: those that wait, longest first, or all in other states, newest first. Nothing of their text."""
    chosen = choose_columns(_COLUMNS, columns, wide=wide)
    states = state or [RefusedState.WAITING]

    async def work(context: CommandContext) -> Page[RefusedMessage]:
        return await context.store.run_read_only(
            lambda uow: list_refused_messages(uow, source=adapter, states=states, offset=offset, limit=limit)
        )

    page = run_with_store(config, work)
    rows = [_row(message) for message in page.items]
    print_list(rows, as_json=as_json, columns=chosen, empty_text="No refused messages wait.")
    print_remaining(page)


@app.command()
def show(
    message: KeyArgument,
    config: ConfigOption = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Print the message as it came. It names the patient: that you looked is noted.")
    ] = False,
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show why a message was refused, the name of its file, its history, and what the present map would make of it."""
    key = RefusedKey(message)
    if raw:
        _show_raw(key, config, operator_name(by))
        return

    async def work(context: CommandContext) -> tuple[RefusedMessage, str | None, tuple[Event, ...], Preview, str | None]:
        found = await context.store.run_read_only(lambda uow: uow.refused_messages.get(key))
        if found is None:
            raise StoreError(f"There is no refused message {key}; `lab-agent results refused list` shows them.")
        history = await context.store.run_read_only(lambda uow: uow.refused_messages.events(key))
        name = await _desk(context).find_sender_name(key, by=operator_name(by))
        try:
            return found, name, history, await _desk(context).preview(key), None
        except (Failure, InvalidTransitionError) as exc:
            return found, name, history, Preview(), str(exc)

    found, name, history, preview, problem = run_with_store(config, work)
    rows = [_part_row(each) for each in preview.parts]
    if as_json:
        told = {"sent_as": name, "history": history, "parts": rows, "problem": problem, "suggestions": preview.suggestions}
        print_json({**_row(found), **told})
        return
    print_fields({**_row(found), "sent as": name}, as_json=False)
    print_heading("History")
    print_list([{"at": each.at, "what": each.text, "by": each.by} for each in history], as_json=False, empty_text="None.")
    print_heading("With the map as it is now")
    print_list(rows, as_json=False, empty_text=problem or "There is nothing in it to take in.")
    if preview.suggestions:
        print_heading("Lines to add to the map")
        print_list([_suggestion_row(each) for each in preview.suggestions], as_json=False, empty_text="")


def _show_raw(key: RefusedKey, config: ConfigOption, by: str) -> None:
    async def work(context: CommandContext) -> tuple[RefusedContent, str | None]:
        content = await _desk(context).look_at(key, by=by)
        found = await context.store.run_read_only(lambda uow: uow.refused_messages.get(key))
        return content, bootstrap.adapter_encoding(context.settings, found.source) if found else None

    content, encoding = run_with_store(config, work)
    if content.raw is None:
        raise StoreError(f"The adapter did not hand over the bytes of this message; it called it {content.message_id!r}.")
    for line in raw_lines(content.raw, encoding):
        print_raw(line)


@app.command()
def replay(
    message: Annotated[str | None, typer.Argument(metavar="MESSAGE", help="Key of the message.")] = None,
    adapter: Annotated[
        str | None,
        typer.Option("--adapter", metavar="NAME", help="All that wait of this laboratory system instead, oldest first."),
    ] = None,
    config: ConfigOption = None,
    over_newer: Annotated[
        bool,
        typer.Option("--over-newer", help="Also where a later message of the same report was accepted: replace its values."),
    ] = False,
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read a message with the present map, and take in every part that is good; nothing twice. Exit code 1 if it still waits.

    The map is read anew by this command. The running agent reads it anew on SIGHUP (`systemctl reload`), or it goes on refusing.
    """
    if bool(message) == bool(adapter) or (adapter and over_newer):
        raise InputError("Name a message, or a laboratory system with --adapter; --over-newer is about one message.")

    async def work(context: CommandContext) -> tuple[ReplayOutcome, ...]:
        desk, who = _desk(context), operator_name(by)
        if adapter is not None:
            return await desk.replay_all(adapter, by=who)
        return (await desk.replay(RefusedKey(message or ""), by=who, over_newer=over_newer),)

    outcomes = run_with_store(config, work)
    if as_json:
        print_json(outcomes if adapter else outcomes[0])
    else:
        for outcome in outcomes:
            _print_outcome(outcome)
        if not outcomes:
            print_line("No refused message of this laboratory system waits that is kept.")
    if any(outcome.problems for outcome in outcomes):
        raise typer.Exit(1)


def _print_outcome(outcome: ReplayOutcome) -> None:
    key = outcome.message.key
    print_line(f"message {key} is {outcome.message.state.value} now: {outcome.new} new, {outcome.known} accepted before")
    for problem in outcome.problems:
        print_line(f"not taken in: {problem}")
    if outcome.is_overtaken:
        print_line(f"To replace the newer values: `lab-agent results refused replay {key} --over-newer`.")


@app.command()
def dismiss(
    note: Annotated[str, typer.Option("--note", help="Your reason; it appears in the message's history.")],
    message: Annotated[list[str] | None, typer.Argument(metavar="MESSAGE…", help="Keys of messages.")] = None,
    adapter: Annotated[
        str | None, typer.Option("--adapter", metavar="NAME", help="All that wait of this laboratory system instead.")
    ] = None,
    config: ConfigOption = None,
    by: ByOption = None,
) -> None:
    """Dismiss messages: they are not needed, whether they come again or not. The alert ends when none waits any more."""
    if bool(message) == bool(adapter):
        raise InputError("Name messages, or a laboratory system with --adapter.")

    async def work(context: CommandContext) -> int:
        desk, who = _desk(context), operator_name(by)
        if adapter is not None:
            return await desk.dismiss_all(adapter, by=who, note=note)
        return len([await desk.dismiss(RefusedKey(key), by=who, note=note) for key in message or ()])

    print_line(f"dismissed: {run_with_store(config, work)}")


def _desk(context: CommandContext) -> RefusedMessageDesk:
    """The desk over adapters that are made for this command and never started."""
    return RefusedMessageDesk(context.store, result_bootstrap.SystemClock(), bootstrap.build_adapters(context.settings))


def _row(message: RefusedMessage) -> Row:
    return {
        "message": message.key,
        "from": message.source,
        "state": message.state,
        "times": message.count,
        "first": message.first_seen_at,
        "last": message.last_seen_at,
        "size": message.size,
        "kept": message.is_kept,
        "reason": message.reason,
    }


def _suggestion_row(suggestion: MapSuggestion) -> Row:
    line = f"{suggestion.key} = {'?' if suggestion.value is None else suggestion.value}"
    return {"table": suggestion.table, "line": line, "why": suggestion.reason}


def _part_row(previewed: PreviewedPart) -> Row:
    part = previewed.part
    return {
        "part": part.place,
        "outcome": previewed.outcome,
        "content": describe_content(part.content),
        "later_message_accepted": None if previewed.was_accepted else previewed.later_at,
        "problem": part.problem,
        "notes": part.notes,
    }
