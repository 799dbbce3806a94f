"""Why somebody decided: the words that the timeline keeps, or that the clinic reads. One rule for commands and pages."""

from __future__ import annotations

from lab_agent.errors import InputError

MAX_NOTE_LENGTH = 500


def validate_note(note: str) -> str:
    """Give the words on one line. Raises `InputError` where they say nothing, or too much."""
    words = " ".join(note.split())
    if not words:
        raise InputError("Say why: the note is kept, and a blank one tells nobody anything. Nothing was changed.")
    if len(words) > MAX_NOTE_LENGTH:
        raise InputError(f"The note has {len(words)} characters; {MAX_NOTE_LENGTH} are enough. Nothing was changed.")
    return words
