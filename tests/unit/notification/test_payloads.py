"""What chat tools are given: texts from outside forge no link and call nobody, and nothing is longer than a tool takes."""

from __future__ import annotations

import json
import re

import pytest

from lab_agent.operations.notification.message import Change
from lab_agent.operations.notification.payloads import to_payload
from lab_agent.operations.notification.text import to_text
from lab_agent.shared.conditions.model import ConditionId
from tests.harness.notifications import LIS_DOWN, NOW, make_item, make_message

HOSTILE = (
    "@channel @everyone <!here> <@U1> [click](https://evil.example) <https://evil.example|our page> **x** https://evil.example"
)
LINK = "https://agent.lab.example"
TEMPLATES = ["json", "slack", "mattermost", "teams", "discord", "telegram"]


@pytest.mark.parametrize("template", ["mattermost", "discord"])
def test_markdown_forges_no_link_and_calls_nobody(template):
    body = to_payload(template, make_message(make_item(LIS_DOWN, "folder", detail=HOSTILE), link=LINK))
    text = body.get("text") or body["content"]
    for forged in (r"@(channel|everyone|here|U1)", r"(?<!\\)\[click", r"(?<!\\)<"):
        assert not re.search(forged, text)
    assert re.findall(r"https?://\S+", text) == [LINK]
    assert "evil.example" in text  # what was found stays to be read
    assert template != "discord" or body["allowed_mentions"] == {"parse": []}


def test_slack_teams_and_telegram_show_texts_as_they_are():
    hostile = make_message(make_item(LIS_DOWN, "<!channel> & co", detail=HOSTILE), link=LINK)
    slack = to_payload("slack", hostile)
    assert {block["text"]["type"] for block in slack["blocks"]} == {"plain_text"}
    assert "&lt;!channel&gt; &amp; co" in slack["text"]
    assert "<" not in slack["text"]
    (attachment,) = to_payload("teams", hostile)["attachments"]
    card = attachment["content"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    assert ({block["type"] for block in card["body"]}, card["actions"][0]["url"]) == ({"RichTextBlock"}, LINK)
    telegram = to_payload("telegram", hostile, "-100")
    assert (telegram["chat_id"], telegram["link_preview_options"]) == ("-100", {"is_disabled": True})
    assert "parse_mode" not in telegram


def test_ten_thousand_alerts_of_three_causes_are_three_entries():
    kinds = ("jobs.write_rejected", "jobs.lis_rejected", "orders.held")
    message = make_message(*(make_item(ConditionId(kinds[number % 3]), f"S{number:05}") for number in range(10_000)))
    text = to_text(message)
    assert sum(line.startswith(("CRITICAL", "WARNING", "NOTICE")) for line in text.splitlines()) == 3
    assert len(text) < 6000
    assert "and 3333 more of this kind" in text
    assert all(len(json.dumps(to_payload(template, message, "1"))) < 200_000 for template in TEMPLATES)


@pytest.mark.parametrize(("template", "limit"), [("slack", 3000), ("discord", 2000), ("telegram", 4096), ("mattermost", 16_383)])
def test_long_texts_are_cut(template, limit):
    """Telegram counts the characters of UTF-16: some of ours count twice."""
    for letter in ("\\", "\N{MICROSCOPE}"):
        items = [make_item(LIS_DOWN, f"{number}", detail=letter * 50_000) for number in range(3)]
        body = to_payload(template, make_message(*items), "1")
        texts = [block["text"]["text"] for block in body.get("blocks", [])] or [body.get("content") or body.get("text", "")]
        assert max(len(text.encode("utf-16-le")) // 2 if template == "telegram" else len(text) for text in texts) <= limit


@pytest.mark.parametrize("letter", ["x", "ж", "検", '"'])
def test_teams_card_is_no_larger_than_teams_takes(letter):
    """28 KB, in UTF-8 and in UTF-16."""
    items = [make_item(condition, detail=letter * 5000) for condition in list(ConditionId)[:20]]
    text = json.dumps(to_payload("teams", make_message(*items)), ensure_ascii=False)
    assert max(len(text.encode()), len(text.encode("utf-16-le"))) <= 28 * 1024
    assert "no room here" in text


def test_json_says_everything():
    item = make_item(LIS_DOWN, "folder", change=Change.ENDED, ended_at=NOW, affected_before="3 orders")
    body = to_payload("json", make_message(item, link=LINK))
    (told,) = body["conditions"]
    said = [told[name] for name in ("condition", "subject", "change", "ended_at")]
    assert said == ["lis.unavailable", "folder", "ended", NOW.isoformat()]
    assert told["link"].startswith(LINK)
    assert (body["kind"], body["total"]) == ("conditions", 1)
