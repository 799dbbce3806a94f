"""Lines go into a person's TOML file, and everything else in it stays as it is."""

import tomllib

import pytest

from lab_agent.workbench.map_lines import TomlEditError, TomlLine, add_lines, paste_lines, split_table, toml_value

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


def test_lines_join_their_tables() -> None:
    lines = [
        TomlLine(STATUS, "N n", '"final"'),
        TomlLine(("results",), "collect_again", "false"),
        TomlLine(("tables", "items"), "Ж", '"1"'),
    ]
    edited = add_lines(MAP, lines)
    expected = MAP.replace('E = "final"\n', 'E = "final"\n"N n" = "final"\n').replace(
        "decimal_comma = false   # for now\n", "decimal_comma = false   # for now\ncollect_again = false\n"
    )
    assert edited == expected + '\n[tables.items]\n"Ж" = "1"\n'


def test_value_of_one_line_is_replaced_and_its_comment_stays() -> None:
    edited = add_lines(MAP, [TomlLine(("results",), "decimal_comma", "true")])
    assert edited == MAP.replace("decimal_comma = false", "decimal_comma = true")


def test_empty_file_gets_the_table() -> None:
    assert add_lines("", [TomlLine(("lis", "my.lis"), "a", "1")]) == '[lis."my.lis"]\na = 1\n'


def test_line_ends_stay() -> None:
    edited = add_lines(MAP.replace("\n", "\r\n"), [TomlLine(STATUS, "X", '"held"')])
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
        add_lines(text, [TomlLine(STATUS, "X", '"held"')])


def test_paste_lines_stand_under_their_tables() -> None:
    lines = [TomlLine(STATUS, "X", '"held"'), TomlLine(("results",), "a", "1"), TomlLine(STATUS, "", '"final"')]
    assert paste_lines(lines) == ["[results]", "a = 1", "[tables.report_status]", 'X = "held"', '"" = "final"']


@pytest.mark.parametrize(
    ("text", "written"), [("true", "true"), ("Europe/Berlin", '"Europe/Berlin"'), ('"a"', '"a"'), ("5", "5")]
)
def test_values_are_written_as_toml(text: str, written: str) -> None:
    assert toml_value(text) == written


def test_table_names_may_hold_dots() -> None:
    assert split_table('lis."a.b".csv') == ("lis", "a.b", "csv")


@pytest.mark.parametrize("comment", ["  # the 'night' shift's", ' # says "X"', "# close", ""])
def test_comment_of_a_replaced_line_stays(comment: str) -> None:
    text = f'[tables.report_status]\nX = "a # b"{comment}\n'
    assert add_lines(text, [TomlLine(STATUS, "X", '"held"')]) == f'[tables.report_status]\nX = "held"{comment}\n'


def test_byte_order_mark_stays() -> None:
    added = add_lines("\ufeff[tables.report_status]\n", [TomlLine(STATUS, "X", '"held"')])
    assert added == '\ufeff[tables.report_status]\nX = "held"\n'
