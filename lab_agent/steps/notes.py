"""Why somebody decided: the words that the timeline keeps, or that the clinic reads. One rule for commands and pages."""

from __future__ import annotations

from lab_agent.errors import InputError

LONGEST_NOTE = 500


def said_why(note: str) -> str:
    """Give the words on one line. Raises `InputError` where they say nothing, or too much."""
    words = " ".join(note.split())
    if not words:
        raise InputError("Say why: the note is kept, and a blank one tells nobody anything. Nothing was changed.")
    if len(words) > LONGEST_NOTE:
        raise InputError(f"The note has {len(words)} characters; {LONGEST_NOTE} are enough. Nothing was changed.")
    return words
