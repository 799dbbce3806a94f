"""The reasons that a clinic reads, in another language: a file of sentences, one for each rule.

A translation is whole or it is refused: a clinic that reads half of its reasons in another language has been forgotten.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from string import Formatter

from lab_agent.errors import Problem, SettingsError
from lab_agent.rules.engine import RULES, check_messages

BUILT_IN_LANGUAGE = "en"


def load_messages(language: str, folder: Path) -> Mapping[str, str]:
    """Sentences by rule id; none for the language that the rules themselves speak. Raises `SettingsError` with all problems."""
    if language == BUILT_IN_LANGUAGE:
        return {}
    path = folder / f"{language}.toml"
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise _settings_error(path, f"cannot be read ({exc.strerror})", "see rules.messages and rules.messages_folder") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise _settings_error(path, f"is not TOML: {exc}", "mend the file") from exc
    if problems := _find_problems(path, given):
        raise SettingsError(problems)
    return given


def _find_problems(path: Path, given: Mapping[str, object]) -> tuple[Problem, ...]:
    sentences = {name: text for name, text in given.items() if isinstance(text, str) and _is_template(text)}
    odd = tuple(
        Problem(f"{path}: {name}", "is no sentence", "write text, and {{ for a brace") for name in given.keys() - sentences
    )
    missing = (rule.id for rule in RULES if rule.id not in given)
    gaps = tuple(Problem(f"{path}: {rule_id}", "has no sentence", "translate it") for rule_id in missing)
    return (*odd, *check_messages(sentences), *gaps)


def _is_template(text: str) -> bool:
    try:
        return bool(list(Formatter().parse(text)))
    except ValueError:
        return False


def _settings_error(path: Path, what: str, hint: str) -> SettingsError:
    return SettingsError((Problem(str(path), what, hint),))
