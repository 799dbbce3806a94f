"""What a page says after a deed. The address carries a word of ours and a number, never a sentence that others could write."""

from __future__ import annotations

from collections.abc import Mapping

_FLASH_MESSAGES = {
    "retried": "Job {job} is due now; the worker takes it up within seconds.",
    "dismissed": "Job {job} was dismissed and stays undone.",
    "done": "Job {job} was marked as done.",
    "order": "Everything of this order that waited is due now; the worker takes it up within seconds.",
    "result-matched": "The result is matched; the worker delivers it within seconds.",
    "result-delivered": "The result has taken effect.",
    "result-superseded": "A newer version came before this one: it is kept, and goes nowhere.",
    "result-dismissed": "The result was dismissed: it is kept, and goes nowhere.",
    "result-waits": "The result still waits; its reason says why.",
    "mended": "What the tables can say was released; what still waits is listed here.",
    "seen": "The refused messages count as seen.",
    "stopped": "The test is stopped; partners see it with their next request.",
    "delayed": "The test is delayed; partners see it with their next request.",
    "outweighed": "It is announced. In some contract something graver holds, and partners see that: it is listed here.",
    "lifted": "The test is as usual again.",
    "lifted-still": "The notice was lifted. In some contract the test is still stopped or delayed: what holds is listed here.",
    "lifted-later": "The test is as usual for now; what is to come for it is listed here.",
    "lifted-unread": "The notice was lifted. Whether the sheet notices says something of the test is not known.",
    "released": "The rule may refuse again, and what it had held is judged anew.",
}


def flash_message(query: Mapping[str, str]) -> str | None:
    """The sentence for `?did=…&job=…`; None if nothing was done."""
    job = query.get("job", "")
    text = _FLASH_MESSAGES.get(query.get("did", ""))
    if text is None or (job and not (job.isascii() and job.isdigit() and len(job) < 19)):
        return None
    return text.format(job=job)
