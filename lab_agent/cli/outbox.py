"""`lab-agent outbox …`: what is to be done outside, and what a person decides about it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from lab_agent.cli.opened import Opened, with_store
from lab_agent.cli.options import AsJson, By, Config, Limit, Offset, decider
from lab_agent.cli.shown import Row, more, say, show_json, show_list
from lab_agent.domain.ids import EffectId
from lab_agent.domain.journal import Effect, EffectKind
from lab_agent.domain.lifecycle import OPEN_EFFECTS, EffectState
from lab_agent.errors import StoreError
from lab_agent.ports.views import PAGE, Page
from lab_agent.steps import desk

app = typer.Typer(help="The outbox: what is to be done outside.", no_args_is_help=True)
Number = Annotated[int, typer.Argument(metavar="EFFECT", help="Number of the effect, as `outbox list` shows it.")]
Note = Annotated[str, typer.Option("--note", help="Why; it is kept in the order's timeline.")]


@app.command("list")
def list_(
    config: Config = None,
    state: Annotated[list[EffectState] | None, typer.Option("--state", help="Only effects in this state.")] = None,
    kind: Annotated[list[EffectKind] | None, typer.Option("--kind", help="Only effects of this kind.")] = None,
    ended: Annotated[bool, typer.Option("--all", help="Those that have ended too.")] = False,
    limit: Limit = PAGE,
    offset: Offset = 0,
    as_json: AsJson = False,
) -> None:
    """List effects, oldest first: those that have not ended."""
    states = state or (list(EffectState) if ended else sorted(OPEN_EFFECTS))

    async def work(opened: Opened) -> Page[Effect]:
        return await opened.views.effects(states=states, kinds=kind or (), limit=limit, offset=offset)

    page = with_store(config, work)
    show_list([_row(effect) for effect in page.items], as_json=as_json, nothing="Nothing is waiting.", full=page.items)
    more(len(page.items), page.total, offset)


@app.command()
def retry(
    effect: Number,
    config: Config = None,
    by: By = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask where a retry may do something twice.")] = False,
    as_json: AsJson = False,
) -> None:
    """Do an effect (again) now. Says what that does before it does it."""

    async def work(opened: Opened) -> Effect:
        current = await opened.views.effect(EffectId(effect))
        if current is None:
            raise StoreError(f"There is no effect {effect}; `lab-agent outbox list` shows them.")
        _agree(current, yes=yes, quiet=as_json)
        return await desk.retry_effect(opened.store, current.id, by=decider(by), now=opened.now)

    _answer(with_store(config, work), as_json=as_json)


@app.command()
def dismiss(effect: Number, note: Note, config: Config = None, by: By = None, as_json: AsJson = False) -> None:
    """Leave an effect undone for good."""

    async def work(opened: Opened) -> Effect:
        return await desk.dismiss_effect(opened.store, EffectId(effect), by=decider(by), note=note, now=opened.now)

    _answer(with_store(config, work), as_json=as_json)


@app.command()
def done(effect: Number, note: Note, config: Config = None, by: By = None, as_json: AsJson = False) -> None:
    """Say that an effect has happened, as you found out elsewhere."""

    async def work(opened: Opened) -> Effect:
        return await desk.mark_effect_done(opened.store, EffectId(effect), by=decider(by), note=note, now=opened.now)

    _answer(with_store(config, work), as_json=as_json)


def _agree(effect: Effect, *, yes: bool, quiet: bool) -> None:
    """Say what a retry does; where it may hand an order over twice, go on only if somebody agrees."""
    if not quiet:
        say(f"effect {effect.id}: {desk.what_retry_does(effect.kind, effect.state)}")
    if effect.kind is not EffectKind.HANDOVER or effect.state is not EffectState.REVIEW or yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter("this may hand the order over a second time; --yes says that you are sure", param_hint="--yes")
    typer.confirm("Are you sure that the laboratory system does not have it?", abort=True)


def _answer(effect: Effect, *, as_json: bool) -> None:
    if as_json:
        show_json(effect)
    else:
        say(f"effect {effect.id} is {effect.state.value} now")


def _row(effect: Effect) -> Row:
    return {
        "effect": effect.id,
        "kind": effect.kind,
        "state": effect.state,
        "order": effect.order,
        "subject": effect.subject,
        "attempts": effect.attempts,
        "due": effect.due_at,
        "reason": effect.reason,
    }
