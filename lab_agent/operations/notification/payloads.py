"""What is posted to a webhook: our own JSON, and the forms of common chat tools.

A text that came from outside can neither forge a link nor call people: it goes into fields that are shown as they are (Slack's
`plain_text`, Teams' text runs, Telegram without a parse mode), or is escaped where there is Markdown (Mattermost, Discord).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lab_agent.operations.notification.message import Item, Message
from lab_agent.operations.notification.text import Entry, to_entries, to_text
from lab_agent.settings.notify import WebhookTemplate
from lab_agent.shared import exact_json

_MAX_ITEMS = 200
_SLACK_BLOCK, _DISCORD_CONTENT, _TELEGRAM_TEXT, _MATTERMOST_TEXT = 2900, 1900, 4000, 15_000
"""Characters, a little less than each tool takes in one field: 3000, 2000, 4096 and 16,383. Those of UTF-16 are counted, where a
character outside the basic plane is two, as Telegram does."""
_TEAMS_CARD = 24_000
"""Bytes of a card: Teams takes 28 KB, and may count them in UTF-16."""
_MARKDOWN = re.compile(r"([\\`*_{}\[\]()<>#+!|~])")
_SELF_LINKING = re.compile(r"@|:(?=//)|www(?=\.)|mailto(?=:)", re.IGNORECASE)
_NOTHING = "\N{ZERO WIDTH SPACE}"


def to_json(message: Message) -> dict[str, Any]:
    """Our own form: what a webhook of template `json` posts, and what a command reads."""
    return {
        "version": 1,
        "id": message.id,
        "kind": "conditions" if message.items else "test",
        "laboratory": message.laboratory,
        "at": message.at.isoformat(),
        "severity": message.severity.value,
        "title": message.title,
        "text": to_text(message),
        "link": message.link,
        "conditions": [_item_to_json(message, each) for each in message.items[:_MAX_ITEMS]],
        "total": len(message.items),
    }


def to_payload(template: WebhookTemplate, message: Message, chat_id: str | None = None) -> dict[str, Any]:
    """Give the body for a chat tool, or our own."""
    if template == "telegram":
        return _telegram(message) | {"chat_id": chat_id}
    return _TEMPLATES[template](message)


def _item_to_json(message: Message, item: Item) -> dict[str, Any]:
    of = item.condition
    return {
        "change": item.change.value,
        "condition": of.condition.id.value,
        "subject": of.subject,
        "severity": of.condition.severity.value,
        "title": of.title,
        "cause": of.cause,
        "affects": of.condition.affects,
        "affected": item.affected,
        "affected_before": item.affected_before,
        "since": of.since.isoformat(),
        "ended_at": None if item.ended_at is None else item.ended_at.isoformat(),
        "mend": of.mend,
        "command": of.command,
        "link": f"{message.link}{of.page}" if message.link and of.page else message.link,
    }


def _slack(message: Message) -> dict[str, Any]:
    """`plain_text` is shown as it is; the notification's own line is escaped as Slack asks (&, <, >)."""
    title = message.title.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    texts = [_cut(each, _SLACK_BLOCK) for each in (message.title, to_text(message))]
    blocks = [{"type": "section", "text": {"type": "plain_text", "text": each, "emoji": False}} for each in texts]
    return {"text": title, "blocks": blocks, "unfurl_links": False, "unfurl_media": False}


def _mattermost(message: Message) -> dict[str, Any]:
    return {"text": _cut(_markdown(message), _MATTERMOST_TEXT)}


def _discord(message: Message) -> dict[str, Any]:
    """`allowed_mentions` calls nobody, and flag 4 shows no previews."""
    return {"content": _cut(_markdown(message), _DISCORD_CONTENT), "allowed_mentions": {"parse": []}, "flags": 4}


def _teams(message: Message) -> dict[str, Any]:
    """An Adaptive Card for a workflow of Teams; text runs know no Markdown."""
    body = [_text_run(_cut(message.title, _SLACK_BLOCK), {"weight": "Bolder"}), *_teams_entries(message)]
    card: dict[str, Any] = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.2",
        "body": body,
    }
    if message.link:
        card["actions"] = [{"type": "Action.OpenUrl", "title": "Status page", "url": message.link}]
    content = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return {"type": "message", "attachments": [content]}


def _teams_entries(message: Message) -> list[dict[str, Any]]:
    """As many whole entries as there is room for, at least one; what is left out is counted."""
    if not message.items:
        return [_text_run(to_text(message))]
    entries, blocks, room = to_entries(message), list[dict[str, Any]](), _TEAMS_CARD
    for number, entry in enumerate(entries):
        texts = [_text_run(entry.heading, {"weight": "Bolder"}), *(_text_run(f"{name}: {text}") for name, text in entry.fields)]
        room -= _size(texts)
        if room < 0 and number:
            return [*blocks, _text_run(f"And {len(entries) - number} more, for which there is no room here.")]
        blocks += texts
    return blocks


def _size(blocks: Sequence[Mapping[str, Any]]) -> int:
    """Bytes as JSON, by the larger of both encodings."""
    text = exact_json.dumps(blocks).decode()
    return max(len(text.encode()), len(text.encode("utf-16-le")))


def _telegram(message: Message) -> dict[str, Any]:
    """Without a parse mode the text is shown as it is."""
    return {"text": _cut(f"{message.title}\n\n{to_text(message)}", _TELEGRAM_TEXT), "link_preview_options": {"is_disabled": True}}


def _text_run(text: str, style: Mapping[str, str] | None = None) -> dict[str, Any]:
    return {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": text, **(style or {})}]}


def _markdown(message: Message) -> str:
    parts = [f"**{escape_markdown(message.title)}**", *(_markdown_entry(each) for each in to_entries(message))]
    parts += [] if message.items else [escape_markdown(to_text(message))]
    return "\n\n".join((*parts, *([message.link] if message.link else [])))


def _markdown_entry(entry: Entry) -> str:
    lines = (f"{escape_markdown(name)}: {escape_markdown(text)}" for name, text in entry.fields)
    return "\n".join((f"**{escape_markdown(entry.heading)}**", *lines))


def escape_markdown(text: str) -> str:
    """Give text that Markdown shows as it is: no link, no mention, no emphasis.

    Nothing but a character without width comes between what would become a mention or a link by itself.
    """
    plain = _SELF_LINKING.sub(lambda found: f"{found[0]}{_NOTHING}", text)
    return _MARKDOWN.sub(r"\\\1", plain)


def _cut(text: str, length: int) -> str:
    """Give no more than `length` characters of UTF-16, and a mark that there is more."""
    units = text.encode("utf-16-le")
    return text if len(units) <= 2 * length else f"{units[: 2 * length].decode('utf-16-le', 'ignore').rstrip(chr(92))}…"


_TEMPLATES: Mapping[str, Callable[[Message], dict[str, Any]]] = {
    "json": to_json,
    "slack": _slack,
    "mattermost": _mattermost,
    "teams": _teams,
    "discord": _discord,
}
