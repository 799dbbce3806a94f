"""Which names may be one person's, as laboratories really write them, and which are another's."""

from __future__ import annotations

import pytest

from lab_agent.lis.lab_order import PatientName
from lab_agent.results.patient_comparison import names_differ


def named(text: str) -> PatientName:
    """`family^given^second`; `=` in front of the patient's name that is sent as text alone, `~` of a further one."""
    if text[:1] in {"=", "~"}:
        return PatientName(family=text[1:] if text[0] == "=" else None, text=text[1:])
    family, *given = text.split("^")
    return PatientName(family=family or None, given=tuple(each for each in given if each))


SAME: dict[str, list[str]] = {
    "Sample^Anna^Maria": ["Sample^Anna^Maria", "SAMPLE^ANNA", "Sample^Maria", "Sample", "^Anna", ""],
    "": ["Sample^Anna"],
    "Müller^Jürgen": ["MUELLER^JUERGEN", "MULLER^JURGEN"],
    "Mueller^Juergen": ["Müller^Jürgen"],
    "Groß^Zoë": ["GROSS^ZOE"],
    "Strauß^Uwe": ["Straus^Uwe"],
    "Sørensen^Åse": ["Soerensen^Aase"],
    "Łukasz^Żaneta": ["LUKASZ^ZANETA"],
    "Yılmaz^İsmet": ["YILMAZ^ISMET"],
    "Bø^Łuk": ["Bo^Luk"],
    "Kjær^Þór": ["Kjaer^Thor"],
    "Cœur^Guð": ["Coeur^Gud"],
    "Ħan^Đin": ["Han^Din"],
    "Yıl^Əli": ["Yil^Eli"],
    "MAX^Haq": ["Maks^Hak"],
    "Hoffmann^Philipp": ["Hofman^Philip"],
    "Иванова^Анна^Петровна": ["ИВАНОВА^АННА", "Иванова^А.П.", "Иванова А. П.", "Иванова Анна Петровна", "Анна Петровна"],
    "Соловьёв^Пётр": ["СОЛОВЬЕВ^ПЕТР"],
    "Құңө^Әғі": ["Куно^Аги"],
    "Дүһа^Єва": ["Духа^Ева"],
    "Петрова^Наталья": ["Петрова^Наталия"],
    "O'Brien^Mary": ["OBRIEN^MARY"],
    "O’Brien^Mary": ["O Brien^Mary"],
    "MacDonald^Ian": ["Mac Donald Ian"],
    "McDonald^Ian": ["MACDONALD^IAN"],
    "D'Souza^Ana": ["De Souza^Ana"],
    "van der Berg^Jan": ["Berg^Jan", "VANDERBERG^JAN"],
    "Berg^Jan": ["Berg, Jan van den", "van Berg-Schulz"],
    "de la Cruz^Ana": ["Delacruz^Ana"],
    "de la Torre^Ana": ["DELATORR^ANA"],
    "Ng García^Ana": ["Ng^Ana"],
    "Meyer-Schulz^Eva": ["Meyer^Eva"],
    "Meyer^Eva": ["Meyer - Schulz^Eva"],
    "Schulz^Eva": ["Meyer-Schulz"],
    "García López^María": ["Lopez Garcia^Maria", "GARCIA^MARIA"],
    "Anna-Lena^Keller": ["Keller^Annalena"],
    "Weber^Karl-Heinz": ["Weber^K.-H.", "WEBER^KARLHEINZ"],
    "Weber^Max": ["Dr. med. Weber^Max"],
    "Smith^John": ["SMITH JR^JOHN^III", "John^Smith", "DOE SMITH, JOHN", "Smith^Jon"],
    "Smith^James": ["Smith^J. Robert"],
    "Smith^Thomas": ["Smith^Th.", "Smith Th."],
    "Smith^Ralph": ["Smith^Ralf"],
    "Brown^Ann": ["Browm^Ann"],
    "Schwarzenegger^Arnold": ["SCHWARZENE^ARN"],
    "Schmidt^Werner": ["Schmdit^Wenrer"],
    "Sample^Anna": ["Sampel^Anna", "山田^花子", "Mеiеr^Anna", "-^-", ".^.", "1234567890^-^-", "N.N.", "S.^A."],
    "Ivanov^Jurij": ["IWANOW^YURI"],
    "Becker^Erik": ["Becker^Eric"],
    "Smith^Sofia": ["Smyth^Sophia"],
    "Byron^Ada+Lovelace": ["Lovelace^Ada"],
    "Lovelace^Ada+~Ada Byron": ["Byron^Ada"],
    "=Ada Lovelace": ["Lovelace^Ada", "Ada Lovelace"],
    "Lovelace^Ada": ["LOVELACE ADA", "Lovelace-Byron Ada Augusta"],
    "Schmidt^Anna^Luise": ["Schmidt Anna Maria"],
    "Le^Van Duc": ["Le Van Duc", "Van Duc^Le"],
    "Li^Na": ["LI^NA", "Na Li"],
    "王^小明": ["王小明"],
    "김^민수": ["김^민수"],
    "Иванова^Анна": ["Petrova^Olga", "Пeтpoвa^Анна"],
    "\U00017000\U00017001^Anna": ["\U00017002\U00017003^Anna"],
    "1234567890^-^-": ["1234567890^-^-"],
    "Sample^-": ["Sample^Anna"],
    "Sen^Amartya": ["Amartya Sen"],
}
OTHER: dict[str, list[str]] = {
    "Sample^Anna": [
        "Example^Anna",
        "Meier^Berta",
        "Meier",
        "Meier Anna",
        "MEIER, BERTA",
        "Sample^Berta",
        "Sample Berta",
        "UNKNOWN^UNKNOWN",
        "Anna^Meier",
        "Meier^A.",
    ],
    "=Anna Sample": ["Sample^Berta", "Meier^Anna", "Meier Anna"],
    "Lovelace^Ada+Byron": ["Byron^Berta"],
    "Lovelace^Ada+Byron^Ada": ["Meier^Ada"],
    "Иванова^Анна^Петровна": ["Иванова^Мария^Петровна", "Иванова Мария Петровна", "Петрова^Анна^Ивановна"],
    "Абрамович^Роман": ["Иванов Роман"],
    "Иванов^Роман": ["Абрамович Роман"],
    "van der Berg^Jan": ["Vander^Jan", "van der Meer^Jan", "VAN DER MEER JAN"],
    "Lang^Uwe": ["Lanz^Uwe"],
    "Braun^Ulf": ["Brown^Ulf"],
    "כהן^דוד": ["לוי^דוד"],
    "O'Brien^Mary": ["O Neill^Mary"],
    "Martin^Thomas": ["Martin^Paul"],
    "Schulz^Martin": ["Martin^Peter"],
    "Dr. Weber^Max": ["Dr. Klein^Max"],
    "Smith Jr^John": ["Jones Jr^John"],
    "Li^Na": ["Wu^Na"],
    "Meyer^Anna": ["Becker^Anna"],
    "Klein^Tim": ["Klein^Tom"],
    "Sample^Anna+Иванова^Анна": ["Петрова^Анна"],
    "王^小明": ["李^小明", "王^大伟"],
    "김^민수": ["박^민수"],
}
"""By a name as it was ordered (several with `+`): what is reported."""
PAIRS = [(ordered, reported, table is OTHER) for table in (SAME, OTHER) for ordered in table for reported in table[ordered]]


@pytest.mark.parametrize(("ordered", "reported", "differ"), PAIRS)
def test_names_compared_as_laboratories_write_them(ordered: str, reported: str, differ: bool) -> None:
    assert names_differ(named(reported), map(named, ordered.split("+"))) is differ


def test_overlong_name_is_read_as_far_as_names_go() -> None:
    assert not names_differ(PatientName(family="Sample " + "x " * 1_000_000), [named("Sample^Anna")])
