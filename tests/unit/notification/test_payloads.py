"""What chat tools are given: texts from outside forge no link and call nobody, and nothing is longer than a tool takes."""

from __future__ import annotations

import json
import re

import pytest

from lab_agent.conditions.ids import ConditionId
from lab_agent.notification.message import Change
from lab_agent.notification.payloads import to_payload
from lab_agent.notification.text import to_text
from tests.harness.notifications import LIS_DOWN, NOW, make_item, make_message

HOSTILE = (
    "@channel @everyone <!here> <@U1> [click](https://evil.example) <https://evil.example|our page> **x** https://evil.example"
)
TEMPLATES = ["json", "slack", "mattermost", "teams", "discord", "telegram"]


@pytest.mark.parametrize("template", ["mattermost", "discord"])
def test_markdown_forges_no_link_and_calls_nobody(template):
    body = to_payload(template, make_message(make_item(LIS_DOWN, "folder", detail=HOSTILE), link="https://agent.lab.example"))
    text = body.get("text") or body["content"]
    assert not re.search(r"@(channel|everyone|here|U1)", text)
    assert not re.search(r"(?<!\\)\[click", text)
    assert re.findall(r"https?://\S+", text) == ["https://agent.lab.example"]
    assert not re.search(r"(?<!\\)<", text)
    assert "evil.example" in text  # what was found stays to be read
    if template == "discord":
        assert body["allowed_mentions"] == {"parse": []}


def test_slack_shows_texts_as_they_are():
    body = to_payload("slack", make_message(make_item(LIS_DOWN, "<!channel> & co", detail=HOSTILE)))
    assert {block["text"]["type"] for block in body["blocks"]} == {"plain_text"}
    assert "&lt;!channel&gt; &amp; co" in body["text"]
    assert "<" not in body["text"]


def test_teams_card_has_text_runs_alone():
    body = to_payload("teams", make_message(make_item(detail=HOSTILE), link="https://agent.lab.example"))
    (attachment,) = body["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    card = attachment["content"]
    assert {block["type"] for block in card["body"]} == {"RichTextBlock"}
    assert card["actions"][0]["url"] == "https://agent.lab.example"


def test_telegram_has_no_parse_mode():
    body = to_payload("telegram", make_message(make_item(detail=HOSTILE)), "-100")
    assert body["chat_id"] == "-100"
    assert "parse_mode" not in body


@pytest.mark.parametrize("template", TEMPLATES)
def test_ten_thousand_alerts_of_three_causes_are_three_entries(template):
    kinds = ("jobs.write_rejected", "jobs.lis_rejected", "orders.held")
    items = [make_item(ConditionId(kinds[number % 3]), f"S{number:05}") for number in range(10_000)]
    message = make_message(*items)
    text = to_text(message)
    assert sum(line.startswith(("CRITICAL", "WARNING", "NOTICE")) for line in text.splitlines()) == 3
    assert len(text) < 6000
    assert "and 3333 more of this kind" in text
    assert len(json.dumps(to_payload(template, message, "1"))) < 200_000


@pytest.mark.parametrize("template", TEMPLATES)
def test_long_texts_are_cut(template):
    items = [make_item(LIS_DOWN, f"{number}", detail="\\" * 50_000) for number in range(3)]
    body = to_payload(template, make_message(*items), "1")
    limits = {"slack": 3000, "discord": 2000, "telegram": 4096, "mattermost": 16_383}
    texts = [block["text"]["text"] for block in body.get("blocks", [])] or [body.get("content") or body.get("text", "")]
    if template in limits:
        assert max(map(len, texts)) <= limits[template]


def test_characters_of_two_units_count_twice():
    """Telegram counts the characters of UTF-16."""
    items = [make_item(LIS_DOWN, f"{number}", detail="\N{MICROSCOPE}" * 5000) for number in range(3)]
    assert len(to_payload("telegram", make_message(*items), "1")["text"].encode("utf-16-le")) <= 2 * 4096


@pytest.mark.parametrize("letter", ["x", "ж", "検", '"'])
def test_teams_card_is_no_larger_than_teams_takes(letter):
    """28 KB, in UTF-8 and in UTF-16."""
    items = [make_item(condition, detail=letter * 5000) for condition in list(ConditionId)[:20]]
    text = json.dumps(to_payload("teams", make_message(*items)), ensure_ascii=False)
    assert max(len(text.encode()), len(text.encode("utf-16-le"))) <= 28 * 1024
    assert "no room here" in text


def test_telegram_shows_no_preview():
    body = to_payload("telegram", make_message(make_item(), link="https://agent.lab.example"), "1")
    assert body["link_preview_options"] == {"is_disabled": True}


def test_json_says_everything():
    item = make_item(LIS_DOWN, "folder", change=Change.ENDED, ended_at=NOW, affected_before="3 orders")
    body = to_payload("json", make_message(item, link="https://agent.lab.example"))
    (told,) = body["conditions"]
    assert (told["condition"], told["subject"], told["change"], told["ended_at"]) == (
        *("lis.unavailable", "folder", "ended"),
        NOW.isoformat(),
    )
    assert told["link"].startswith("https://agent.lab.example")
    assert (body["kind"], body["total"]) == ("conditions", 1)
