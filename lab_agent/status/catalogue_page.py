"""What the laboratory offers: the catalogue in force, its tests, its versions and what they changed, and the label pools."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from fastapi import APIRouter
from starlette.responses import Response

from lab_agent.catalogue.label_allocation import issued_ranges
from lab_agent.catalogue.model import Catalogue, Contract, Item
from lab_agent.catalogue.notices import ActiveNotice, NoticeOverview
from lab_agent.catalogue.questionnaire import QuestionNode, build_questionnaire
from lab_agent.catalogue.spreadsheet.diff import Change, diff_tables
from lab_agent.catalogue.versions import unpack_tables
from lab_agent.shared.errors import CatalogueError
from lab_agent.shared.label_pools import LabelPool
from lab_agent.status.auth import HttpError, Viewer
from lab_agent.status.context import Context, Renderer, StatusContext
from lab_agent.status.forms import one_line
from lab_agent.status.notice_pages import Board
from lab_agent.status.pages import SearchText
from lab_agent.status.paging import PageNumber, page_offset
from lab_agent.store.read_models import CatalogueVersionSummary

router = APIRouter()

_PAGE_SIZE = _SHOWN_VERSIONS = 50
_COMPARED_VERSIONS = 200
_MAX_CHANGES = 500
_RATE_DAYS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolView:
    """A pool of labels: how many are left of how many, and for how many days at the rate of the last week (None: no rate)."""

    pool: LabelPool
    size: int
    left: int
    per_day: float
    days_left: int | None

    @property
    def used_share(self) -> int:
        """Percent that are used."""
        return round(100 * (self.size - self.left) / self.size) if self.size else 100

    @property
    def tone(self) -> str:
        """How worrying it is."""
        return "bad" if not self.left else "warn" if self.left < self.pool.warn_below else ""


@router.get("/catalogue")
async def show_catalogue(
    user: Viewer, context: Context, renderer: Renderer, search: SearchText, page: PageNumber, contract: str = ""
) -> Response:
    """The version in force: its tests, searched and page by page; the stored versions; the pools."""
    versions = await context.queries.catalogue_versions(limit=_SHOWN_VERSIONS + 1)
    catalogue = context.active_catalogue()
    chosen = _choose_contract(catalogue, one_line(contract))
    found = list(_search(chosen, search)) if chosen else []
    begin = page_offset(page)
    return await renderer.render_page(
        "catalogue.html",
        user,
        catalogue=catalogue,
        contract=chosen,
        items=found[begin : begin + _PAGE_SIZE],
        total=len(found),
        offset=begin,
        page_number=page,
        has_more=len(found) > begin + _PAGE_SIZE,
        search=search,
        versions=versions,
        shown_versions=_SHOWN_VERSIONS,
        pools=[await _view_pool(context, pool) for pool in context.label_pools],
    )


def _choose_contract(catalogue: Catalogue | None, code: str) -> Contract | None:
    if catalogue is None:
        return None
    return catalogue.contracts.get(code) or next(iter(catalogue.contracts.values()), None)


def _search(contract: Contract, search: str) -> Iterator[Item]:
    wanted = search.casefold()
    for item in contract.items.values():
        if wanted in f"{item.id} {item.caption} {item.group} {item.lab_id}".casefold():
            yield item


async def _view_pool(context: StatusContext, pool: LabelPool) -> PoolView:
    ranges = issued_ranges(pool, await context.queries.issued_ranges(pool.pattern), {})
    since = context.clock.now() - timedelta(days=_RATE_DAYS)
    per_day = await context.queries.labels_issued(pool.name, since=since) / _RATE_DAYS
    left = pool.remaining(ranges)
    return PoolView(
        pool=pool,
        size=pool.last - pool.first + 1,
        left=left,
        per_day=per_day,
        days_left=int(left / per_day) if per_day else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferView:
    """A test as a contract offers it, with its questions, the notice that applies now, and those to come or outweighed."""

    contract: Contract
    item: Item
    questions: Sequence[QuestionNode]
    current: ActiveNotice | None
    others: Sequence[ActiveNotice]


@router.get("/catalogue/tests/{code}")
async def show_test(code: str, user: Viewer, context: Context, renderer: Renderer, board: Board) -> Response:
    """One test as each contract offers it."""
    catalogue, wanted = context.active_catalogue(), one_line(code)
    overview = await board.load_overview(context.clock.now())
    offers = tuple(_view_offers(catalogue, wanted, overview)) if catalogue else ()
    if not offers:
        raise HttpError("The catalogue in force has no such test.", 404)
    return await renderer.render_page("catalogue_test.html", user, code=wanted, offers=offers)


def _view_offers(catalogue: Catalogue, code: str, overview: NoticeOverview) -> Iterator[OfferView]:
    for contract in catalogue.contracts.values():
        item = contract.items.get(code)
        if item is not None:
            status = overview.test_status(code, contract.code)
            yield OfferView(
                contract=contract,
                item=item,
                questions=build_questionnaire(catalogue, [item]).questions(),
                current=status.current.get(contract.code),
                others=status.other_notices,
            )


@router.get("/catalogue/diff")
async def show_changes(user: Viewer, context: Context, renderer: Renderer, version: str = "", before: str = "") -> Response:
    """What a stored version changed of another one: of the one `before` it, where none is named."""
    versions = await context.queries.catalogue_versions(limit=_COMPARED_VERSIONS)
    numbers = [str(each.number) for each in versions]
    if version not in numbers or (before and before not in numbers):
        raise HttpError("There is no such version (any more).", 404)
    place = numbers.index(version)
    if not before and place + 1 >= len(versions):
        raise HttpError("No version is stored from before this one.", 404)
    new, old = versions[place], versions[numbers.index(before) if before else place + 1]
    changes, problem = await _compare(context, old, new)
    return await renderer.render_page(
        "catalogue_diff.html",
        user,
        versions=versions,
        old=old,
        new=new,
        changes=changes[:_MAX_CHANGES],
        total=len(changes),
        counts=_count_kinds(changes),
        problem=problem,
    )


async def _compare(
    context: StatusContext, old: CatalogueVersionSummary, new: CatalogueVersionSummary
) -> tuple[tuple[Change, ...], str | None]:
    contents = [await context.queries.catalogue_content(each.number) for each in (old, new)]

    def compare() -> tuple[Change, ...]:
        before, after = (unpack_tables(content or b"") for content in contents)
        return diff_tables(before, after)

    try:
        return await asyncio.to_thread(compare), None
    except CatalogueError as exc:
        return (), str(exc)


def _count_kinds(changes: tuple[Change, ...]) -> Mapping[str, int]:
    kinds = ("new", "gone", "changed", "moved")
    return {kind: number for kind in kinds if (number := sum(each.kind == kind for each in changes))}
