"""Lines go into a person's TOML file, and everything else in it stays as it is."""

import tomllib

import pytest

from lab_agent.results.trial.map_lines import TomlEditError, TomlLine, add_lines

MAP = """# Our map.

[results]
issued = ["OBR-22.1",  # first
  "MSH-7.1"]
decimal_comma = false   # for now

# Statuses.
[tables.report_status]
E = "final"

[fields.ZLB]
1 = "{line.key}"
"""
STATUS = ("tables", "report_status")


HELD = TomlLine(STATUS, "X", '"held"')
EDITED = [
    (  # each joins its table, or gets one at the end
        MAP,
        [TomlLine(STATUS, "N n", '"final"'), TomlLine(("results",), "again", "false"), TomlLine(("tables", "items"), "Ж", '"1"')],
        MAP.replace('E = "final"\n', 'E = "final"\n"N n" = "final"\n').replace("# for now\n", "# for now\nagain = false\n")
        + '\n[tables.items]\n"Ж" = "1"\n',
    ),
    (
        MAP,
        [TomlLine(("results",), "decimal_comma", "true")],
        MAP.replace("decimal_comma = false", "decimal_comma = true"),
    ),
    ("", [TomlLine(("lis", "my.lis"), "a", "1")], '[lis."my.lis"]\na = 1\n'),
    ("\ufeff[tables.report_status]\n", [HELD], '\ufeff[tables.report_status]\nX = "held"\n'),
    *(
        (f'[tables.report_status]\nX = "a # b"{comment}\n', [HELD], f'[tables.report_status]\nX = "held"{comment}\n')
        for comment in ("  # the 'night' shift's", ' # says "X"', "# close", "")
    ),
]


@pytest.mark.parametrize(("text", "lines", "edited"), EDITED)
def test_lines_join_their_tables_and_the_rest_stays(text: str, lines: list[TomlLine], edited: str) -> None:
    assert add_lines(text, lines) == edited


def test_line_ends_stay() -> None:
    edited = add_lines(MAP.replace("\n", "\r\n"), [HELD])
    assert edited.count("\r\n") == edited.count("\n")
    assert tomllib.loads(edited)["tables"]["report_status"] == {"E": "final", "X": "held"}


@pytest.mark.parametrize(
    "text",
    [
        'tables = { report_status = { E = "final" } }\n',
        'tables.report_status.E = "final"\n',
        '[tables.report_status]\nX = """\nheld"""\n',
        "not toml",
    ],
)
def test_other_forms_are_left_to_a_person(text: str) -> None:
    with pytest.raises(TomlEditError):
        add_lines(text, [HELD])
