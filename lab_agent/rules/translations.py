"""The messages of the rules in another language: a TOML file with one message for each rule.

A translation must be complete: a clinic should not read half of its reasons in another language.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from string import Formatter

from lab_agent.rules.engine import RULES, check_messages
from lab_agent.shared.errors import Problem, SettingsError
from lab_agent.shared.shipped_files import shipped_path

BUILT_IN_LANGUAGE = "en"


def load_messages(language: str, folder: Path | None) -> Mapping[str, str]:
    """Messages by rule id; none for English, the language of the rules themselves. Raises `SettingsError` with all problems.

    Without a folder, the translations that come with the program.
    """
    if language == BUILT_IN_LANGUAGE:
        return {}
    path = (folder or shipped_path("config/messages")) / f"{language}.toml"
    try:
        given = tomllib.loads(path.read_bytes().decode())
    except OSError as exc:
        raise _settings_error(
            path, f"cannot be read ({exc.strerror})", "check `rules.messages` and `rules.messages_folder`"
        ) from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise _settings_error(path, f"is not TOML: {exc}", "correct the file") from exc
    if problems := _find_problems(path, given):
        raise SettingsError(problems)
    return given


def _find_problems(path: Path, given: Mapping[str, object]) -> tuple[Problem, ...]:
    messages = {name: text for name, text in given.items() if isinstance(text, str) and _is_template(text)}
    invalid = tuple(
        Problem(f"{path}: {name}", "is not a message", "write text, and {{ for a brace") for name in given.keys() - messages
    )
    untranslated = (rule.id for rule in RULES if rule.id not in given)
    missing = tuple(Problem(f"{path}: {rule_id}", "has no message", "translate it") for rule_id in untranslated)
    return (*invalid, *check_messages(messages), *missing)


def _is_template(text: str) -> bool:
    try:
        return bool(list(Formatter().parse(text)))
    except ValueError:
        return False


def _settings_error(path: Path, what: str, hint: str) -> SettingsError:
    return SettingsError((Problem(str(path), what, hint),))
