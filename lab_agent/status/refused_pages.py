"""Refused messages of the laboratory systems: listed, read with the present map, replayed, dismissed, and looked at.

A raw text names a patient. It is shown to operators alone, in the answer to a form (so that no address leads to it), and each
look is in the message's history.
"""

from __future__ import annotations

from itertools import islice
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Depends
from starlette.responses import RedirectResponse, Response

from lab_agent.operations.accounts import Role
from lab_agent.results.refused_message_actions import Preview, describe_content
from lab_agent.results.refused_messages import list_refused_messages
from lab_agent.results.refused_records import RefusedMessage, RefusedState, raw_lines
from lab_agent.shared.errors import Failure, InvalidTransitionError
from lab_agent.shared.ids import RefusedKey
from lab_agent.shared.logs import get_logger
from lab_agent.status.auth import HttpError, Operator, Viewer
from lab_agent.status.context import Context, Renderer, StatusContext
from lab_agent.status.forms import Form, Note, one_line
from lab_agent.status.pages import Flash, StateNames
from lab_agent.status.paging import PageNumber, page_offset
from lab_agent.status.translation import gettext
from lab_agent.store.read_models import DEFAULT_PAGE_SIZE, Page
from lab_agent.store.unit_of_work import UnitOfWork

router = APIRouter()
_log = get_logger(__name__)

_MAX_LINES = 5_000
_MAX_LINE_LENGTH = 4_000
"""What a page shows of a raw text; `lab-agent results refused show --raw` prints the whole."""


async def get_refused_message(key: str, context: Context, _: Viewer) -> RefusedMessage:
    """The refused message of the address. Raises `HttpError`."""
    wanted = RefusedKey(one_line(key))
    found = await context.store.run_read_only(lambda uow: uow.refused_messages.get(wanted))
    if found is None:
        raise HttpError("There is no refused message with this key.", 404)
    return found


Refused = Annotated[RefusedMessage, Depends(get_refused_message)]


@router.get("/refused")
async def show_refused_messages(
    user: Viewer, context: Context, renderer: Renderer, page: PageNumber, state_names: StateNames, flash: Flash, source: str = ""
) -> Response:
    """What waits, longest first; or all in the selected states, newest first. Of one adapter, or of all."""
    selected = [state for state in RefusedState if state.value in state_names]
    states, adapter = selected or [RefusedState.WAITING], one_line(source) or None

    def load(uow: UnitOfWork) -> Page[RefusedMessage]:
        return list_refused_messages(uow, source=adapter, states=states, offset=page_offset(page), limit=DEFAULT_PAGE_SIZE)

    query = [("source", adapter)] * bool(adapter) + [("state", state.value) for state in selected]
    return await renderer.render_page(
        "refused.html",
        user,
        page=await context.store.run_read_only(load),
        page_number=page,
        query_string=urlencode(query),
        states=RefusedState,
        selected_states=selected,
        longest_first=states == [RefusedState.WAITING],
        source=adapter,
        waiting_counts=await context.store.run_read_only(lambda uow: uow.refused_messages.waiting_counts()),
        flash=flash,
    )


@router.get("/refused/{key}")
async def show_refused_message(user: Viewer, context: Context, renderer: Renderer, message: Refused, flash: Flash) -> Response:
    """One message: why it was refused, what the present map would make of it, and its history; nothing of its text.

    What it was sent as, such as a file's name, may name the patient: operators alone see it.
    """
    preview, problem = await _preview(context, message)
    may_see = user.account.has_role(Role.OPERATOR)
    return await renderer.render_page(
        "refused_message.html",
        user,
        message=message,
        parts=[(part, describe_content(part.part.content)) for part in preview.parts],
        suggestions=preview.suggestions,
        preview_problem=problem,
        sent_as=await context.refused_messages.find_sender_name(message.key, by=user.name) if may_see else None,
        history=await context.store.run_read_only(lambda uow: uow.refused_messages.events(message.key)),
        flash=flash,
    )


async def _preview(context: StatusContext, message: RefusedMessage) -> tuple[Preview, str | None]:
    """What the present map makes of a message, or why that cannot be told."""
    try:
        return await context.refused_messages.preview(message.key), None
    except (Failure, InvalidTransitionError) as exc:
        return Preview(), str(exc)


@router.post("/refused/{key}/raw")
async def show_raw_text(user: Operator, _: Form, context: Context, renderer: Renderer, message: Refused) -> Response:
    """The message as it came. The look is noted before the text is given."""
    content = await context.refused_messages.look_at(message.key, by=user.name)
    encoding = next((each.encoding for each in context.adapters if each.name == message.source), None)
    lines = list(islice(raw_lines(content.raw or b"", encoding), _MAX_LINES + 1))
    return await renderer.render_page(
        "refused_raw.html",
        user,
        message=message,
        content=content,
        lines=[line[:_MAX_LINE_LENGTH] for line in lines[:_MAX_LINES]],
        is_cut=len(lines) > _MAX_LINES or any(len(line) > _MAX_LINE_LENGTH for line in lines),
    )


@router.post("/refused/{key}/replay")
async def replay_message(user: Operator, form: Form, context: Context, message: Refused) -> Response:
    """Read a message with the present map, and take in what is good."""
    outcome = await context.refused_messages.replay(message.key, by=user.name, over_newer=form.get("over_newer") == "yes")
    flash = "refused-still-waiting" if outcome.problems else "refused-replayed"
    return RedirectResponse(f"/refused/{message.key}?flash={flash}", 303)


@router.post("/refused/{key}/dismiss")
async def dismiss_message(user: Operator, context: Context, message: Refused, note: Note) -> Response:
    """Leave a message for good."""
    await context.refused_messages.dismiss(message.key, by=user.name, note=note)
    return RedirectResponse("/refused?flash=refused-dismissed", 303)


@router.post("/refused/dismiss")
async def dismiss_all(user: Operator, form: Form, context: Context, note: Note) -> Response:
    """Leave all waiting messages of a laboratory system: as many as the page showed, and no more."""
    source, count = form.get("source", ""), form.get("expected_count", "")
    waiting = await context.store.run_read_only(lambda uow: uow.refused_messages.waiting_counts())
    if source not in waiting:
        raise HttpError("There are no waiting messages of a laboratory system with this name.", 404)
    if count != str(waiting[source]):
        raise HttpError(
            gettext("There are %(number)d refused messages by now. Nothing was done; review them first.")
            % {"number": waiting[source]},
            409,
        )
    await context.refused_messages.dismiss_all(source, by=user.name, note=note, expected_count=waiting[source])
    _log.info("refused messages dismissed", action="refused_dismissed", adapter=source, by=user.name)
    return RedirectResponse("/refused?flash=refused-dismissed", 303)
