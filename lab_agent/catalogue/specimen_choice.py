"""Which biomaterial a basket item means: its choice among the item's specimen options (interface: order rule 2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lab_agent.catalogue.basket_errors import BasketProblems
from lab_agent.catalogue.model import Item, Requirement, SpecimenOption

_Options = tuple[Requirement, ...]
_OptionAttribute = Callable[[SpecimenOption], tuple[str | None, str]]


@dataclass(frozen=True, slots=True)
class SpecimenRequest:
    """What a basket item says about the biomaterial; empty and None mean that it says nothing."""

    specimen_codes: tuple[str, ...] = ()
    bodysite_code: str | None = None
    container_type: str | None = None


_NOTHING = SpecimenRequest()


def choose_requirements(
    item: Item, request: SpecimenRequest, where: str, problems: BasketProblems
) -> tuple[Requirement, ...] | None:
    """Find the options that are meant; None, with the problem added, if they are not clear.

    An item with one option needs no choice. A body site or container counts only where the options have one. All fields that are
    given narrow the choice together: a container that only one option has determines its type and body site too. A field that is
    left out is a problem only where it still makes a difference.
    """
    if not item.options:
        return _check_no_choice(item, request, where, problems)
    if len(item.options) == 1 and request == _NOTHING:
        return item.options
    if len(request.specimen_codes) > 1 and not item.multiple_specimen:
        what = f"has {len(request.specimen_codes)} types, and item {item.id!r} takes exactly one"
        problems.add(f"{where}.specimen_code", what, "send one basket item for each type", "value")
        return None
    codes = request.specimen_codes or _possible_types(item.options, request)
    if not request.specimen_codes and len(codes) > 1:
        what = f"is missing, and item {item.id!r} has a choice"
        problems.add(f"{where}.specimen_code", what, f"choose {_describe_types(item.options)}", "required")
        return None
    chosen = [_choose_of_type(item, code, request, where, problems) for code in codes]
    return tuple(each for each in chosen if each is not None) if all(chosen) else None


def _check_no_choice(
    item: Item, request: SpecimenRequest, where: str, problems: BasketProblems
) -> tuple[Requirement, ...] | None:
    foreign = [code for code in request.specimen_codes if code not in item.required_types]
    if not foreign:
        return ()
    what = f"type {foreign[0][:50]!r} is not offered: item {item.id!r} has no choice"
    problems.add(f"{where}.specimen_code", what, "leave specimen_code out", "value")
    return None


def _choose_of_type(item: Item, code: str, request: SpecimenRequest, where: str, problems: BasketProblems) -> Requirement | None:
    fitting = tuple(each for each in item.options if each.specimen_code == code)
    if not fitting:
        mandatory = " (it is mandatory, and is added automatically)" if code in item.required_types else ""
        what = f"type {code[:50]!r} is not offered for item {item.id!r}{mandatory}"
        problems.add(f"{where}.specimen_code", what, f"choose {_describe_types(item.options)}", "value")
        return None
    for _, wanted, attribute in _requested_attributes(request):
        fitting = (_with_attribute(fitting, wanted, attribute) if wanted else ()) or fitting
    for name, wanted, attribute in _requested_attributes(request):
        narrowed = _narrow_options(fitting, wanted, attribute)
        if narrowed is None:
            site = fitting[0].option.bodysite_code if attribute is _container else None
            kind = f"type {code} at body site {site}" if site else f"type {code}"
            what = f"{'is missing' if wanted is None else f'{wanted[:50]!r} is not offered'} for {kind} of item {item.id!r}"
            hint = f"choose {_describe_values(fitting, attribute)}"
            problems.add(f"{where}.{name}", what, hint, "value" if wanted else "required")
            return None
        fitting = narrowed
    return fitting[0]


def _possible_types(options: _Options, request: SpecimenRequest) -> tuple[str, ...]:
    """The types that body site and container leave; all of them where no option has what is given."""
    fitting = options
    for _, wanted, attribute in _requested_attributes(request):
        if wanted is not None and any(attribute(each.option)[0] for each in options):
            fitting = _with_attribute(fitting, wanted, attribute)
    return tuple(sorted({each.specimen_code for each in fitting or options}))


def _narrow_options(options: _Options, wanted: str | None, attribute: _OptionAttribute) -> _Options | None:
    """The options with the wanted code; None if none has it, or if nothing is wanted where there are several."""
    offered = {attribute(each.option)[0] for each in options}
    if offered == {None} or (wanted is None and len(offered) == 1):
        return options
    return _with_attribute(options, wanted, attribute) or None


def _requested_attributes(request: SpecimenRequest) -> tuple[tuple[str, str | None, _OptionAttribute], ...]:
    return ("bodysite_code", request.bodysite_code, _body_site), ("container_type", request.container_type, _container)


def _with_attribute(options: _Options, wanted: str | None, attribute: _OptionAttribute) -> _Options:
    return tuple(each for each in options if attribute(each.option)[0] == wanted)


def _body_site(option: SpecimenOption) -> tuple[str | None, str]:
    return option.bodysite_code, option.bodysite_name


def _container(option: SpecimenOption) -> tuple[str | None, str]:
    return option.container_type, option.container_name


def _describe_types(options: Iterable[Requirement]) -> str:
    return _join_alternatives({each.specimen_code: each.option.specimen_name for each in options})


def _describe_values(options: Iterable[Requirement], attribute: _OptionAttribute) -> str:
    return _join_alternatives({code: name for each in options for code, name in [attribute(each.option)] if code is not None})


def _join_alternatives(names: dict[str, str]) -> str:
    shown = [f"{code} ({name})" if name else code for code, name in sorted(names.items())]
    return " or ".join(shown[:8]) + (" …" if len(shown) > 8 else "")
