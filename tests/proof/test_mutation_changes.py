"""Mutation testing: which changes are made, which tests are tried with them, and why some may survive."""

from __future__ import annotations

import importlib.util

import pytest

from tests.proof.mutation.survivors import FILE, read_survivors

pytestmark = pytest.mark.slow
needs_mutmut = pytest.mark.skipif(importlib.util.find_spec("mutmut") is None, reason="`make .venv/.mutation` installs mutmut")
LISTED = """
# the same name of a codec
~ .*"utf-8" => .*"UTF-8"
# nobody asks
lab_agent.x:f: a => b
"""


def test_survivors_are_listed_by_key_or_pattern_each_with_its_reason() -> None:
    survivors = read_survivors(LISTED)
    for key, reason in {
        "lab_agent.x:f: a => b": "nobody asks",
        "lab_agent.x:f: a => c": None,
        'lab_agent.y:g: "utf-8" => "UTF-8"': "the same name of a codec",
        'lab_agent.y:g: "utf-8" => "UTF-8" + x': None,
    }.items():
        assert survivors.reason(key) == reason
    with pytest.raises(ValueError, match="a => b"):
        read_survivors("lab_agent.x:f: a => b")
    assert read_survivors(FILE.read_text()).by_key


@needs_mutmut
def test_decorated_functions_and_transitions_are_changed() -> None:
    from tests.proof.mutation.changes import changes_of  # noqa: PLC0415 - needs mutmut

    rules = changes_of("lab_agent.rules.line")
    assert {each.function for each in rules} >= {"_check_status", "_check_subject"}
    keys = {each.key for each in changes_of("lab_agent.shared.state_machines")}
    assert "lab_agent.shared.state_machines:-: withdrawn -> closed => withdrawn -> closed seen" in keys
    assert "lab_agent.shared.state_machines:-: withdrawn -> closed => withdrawn ->" in keys


@needs_mutmut
@pytest.mark.parametrize("module", ["lab_agent.queue.retry", "lab_agent.store.restoration", "lab_agent.rules.rule"])
def test_each_change_is_valid_python_of_its_own(module: str) -> None:
    from tests.proof.mutation.changes import changes_of, file_of  # noqa: PLC0415 - needs mutmut

    changes = changes_of(module)
    texts = {each.edit() for each in changes}
    for text in texts:
        compile(text, module, "exec")
    assert file_of(module).read_text() not in texts
    assert len({each.key for each in changes}) == len(changes)


@needs_mutmut
def test_texts_for_people_are_not_changed() -> None:
    from tests.proof.mutation.changes import changes_of  # noqa: PLC0415 - needs mutmut

    changed = [each.new for each in changes_of("lab_agent.store.restoration")]
    assert not [each for each in changed if each.startswith('"') and " " in each]
