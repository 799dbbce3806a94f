"""What a page says after a deed. The address carries a word of ours and a number, never a sentence that others could write."""

from __future__ import annotations

from collections.abc import Mapping

_DEEDS = {
    "retried": "Effect {effect} is due now; the worker takes it up within seconds.",
    "dismissed": "Effect {effect} was dismissed and stays undone.",
    "done": "Effect {effect} was marked as done.",
    "order": "Everything of this order that waited is due now; the worker takes it up within seconds.",
    "released": "The rule may refuse again, and what it had held is judged anew.",
}


def sentence(query: Mapping[str, str]) -> str | None:
    """The sentence for `?did=…&effect=…`; None if nothing was done."""
    effect = query.get("effect", "")
    text = _DEEDS.get(query.get("did", ""))
    if text is None or (effect and not (effect.isascii() and effect.isdigit() and len(effect) < 19)):
        return None
    return text.format(effect=effect)
