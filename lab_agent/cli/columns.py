"""Which columns of a list are printed, and how wide: keys whole on one line, the least important columns left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lab_agent.shared.errors import InputError, did_you_mean

GAP = 2
"""Blanks between two columns."""
_NARROWEST_TEXT = 24
_TEXTS = frozenset({
    "affected", "allowed", "contracts", "detail", "examples", "file", "line", "message", "output", "reason", "source",
    "text", "to_do", "what", "why",
})  # fmt: skip
"""Columns of sentences and enumerations, which may be wrapped. All others stay on one line."""


@dataclass(frozen=True, slots=True)
class ListColumns:
    """The columns of a list by importance, most important first; `names` are those asked for, `wide` asks for all, unwrapped."""

    by_importance: tuple[str, ...]
    names: tuple[str, ...] | None = None
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns that are printed, each with its width, and what was left out."""

    widths: Mapping[str, int]
    left_out: tuple[str, ...] = ()


def choose_columns(by_importance: tuple[str, ...], names: str | None, *, wide: bool) -> ListColumns:
    """Read `--columns a,b,c` and `--wide`. Raises `InputError` for a name that the list does not have."""
    if names is None:
        return ListColumns(by_importance, None, wide)
    wanted = tuple(dict.fromkeys(name.strip().replace(" ", "_") for name in names.split(",") if name.strip()))
    for name in wanted:
        if name not in by_importance:
            guess = did_you_mean(name, by_importance)
            known = f"the columns are {', '.join(by_importance)}"
            raise InputError(f"There is no column {name!r}; {f'{guess} ' if guess else ''}{known}")
    if not wanted:
        raise InputError(f"--columns names no column; the columns are {', '.join(by_importance)}")
    return ListColumns(by_importance, wanted, wide)


def lay_out(columns: ListColumns | None, natural: Mapping[str, int], available: int | None) -> Layout:
    """Divide the available width among columns whose contents are so wide; None: as wide as they are.

    Without `columns` nothing is left out. What cannot be narrower than the terminal is printed wider than it.
    """
    shown = [name for name in (columns.names if columns and columns.names else natural) if name in natural]
    if available is None or (columns is not None and columns.wide):
        return Layout({name: natural[name] for name in shown})
    left_out = _find_left_out(columns, shown, natural, available) if columns is not None and columns.names is None else []
    kept = [name for name in shown if name not in left_out]
    return Layout(_divide(kept, natural, available), tuple(left_out))


def _find_left_out(columns: ListColumns, shown: Sequence[str], natural: Mapping[str, int], available: int) -> list[str]:
    ranked = sorted(shown, key=columns.by_importance.index)
    left_out: list[str] = []
    while len(ranked) > 1 and _narrowest_line(ranked, natural) > available:
        left_out.append(ranked.pop())
    return left_out


def _narrowest_line(names: Sequence[str], natural: Mapping[str, int]) -> int:
    return sum(_narrowest(name, natural) for name in names) + GAP * (len(names) - 1)


def _narrowest(name: str, natural: Mapping[str, int]) -> int:
    return min(natural[name], _NARROWEST_TEXT) if name in _TEXTS else natural[name]


def _divide(names: Sequence[str], natural: Mapping[str, int], available: int) -> dict[str, int]:
    """Give each its width; texts share what the others leave, a short one no more than it needs."""
    widths = {name: natural[name] for name in names}
    texts = sorted((name for name in names if name in _TEXTS), key=natural.__getitem__)
    rest = available - GAP * (len(names) - 1) - sum(natural[name] for name in names if name not in _TEXTS)
    for index, name in enumerate(texts):
        fair = rest // (len(texts) - index)
        widths[name] = min(natural[name], max(fair, _narrowest(name, natural)))
        rest -= widths[name]
    return widths
