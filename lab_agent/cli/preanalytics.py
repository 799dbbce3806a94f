"""`lab-agent preanalytics explain`: why a basket needs these tubes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from lab_agent.catalogue import basket as baskets
from lab_agent.catalogue import load, preanalytics
from lab_agent.catalogue.basket_body import decode_basket
from lab_agent.catalogue.explain import explain_preanalytics as explain_plan
from lab_agent.catalogue.items import Catalogue
from lab_agent.catalogues.keeping import load_active_catalogue
from lab_agent.cli.opened import CommandContext, run_with_store
from lab_agent.cli.options import ConfigOption
from lab_agent.cli.shown import print_raw
from lab_agent.errors import CatalogueError, DataInvalidError, Problem
from lab_agent.settings.root import load_settings

preanalytics_app = typer.Typer(help="The tubes of a basket.", no_args_is_help=True)


@preanalytics_app.callback()
def preanalytics_callback() -> None:
    """The tubes of a basket."""


@preanalytics_app.command()
def explain(
    basket: Annotated[Path, typer.Argument(metavar="BASKET", help="A pre-analytics request, as JSON.")],
    config: ConfigOption = None,
    source: Annotated[
        Path | None, typer.Option("--catalogue", help="A workbook or folder in the place of the catalogue in force.")
    ] = None,
) -> None:
    """Say which tests went into which tube, and why there are not fewer. No label is given out."""
    settings = load_settings(config).api
    body = _read_basket_file(basket, settings.max_body)
    catalogue = run_with_store(config, _require_active_catalogue) if source is None else load.load_catalogue(source)
    asked = baskets.read_basket(body, catalogue.contracts, settings.max_basket)
    for line in explain_plan(preanalytics.calculate(catalogue, asked.lines)):
        print_raw(line)


def _read_basket_file(basket: Path, limit: int) -> Any:
    try:
        content = basket.read_bytes()
    except OSError as exc:
        raise DataInvalidError((Problem(str(basket), f"cannot be read: {exc.strerror}", "name a file with a request"),)) from exc
    if len(content) > limit:
        raise DataInvalidError((Problem(str(basket), f"is larger than {limit} bytes", "take a smaller one"),))
    return decode_basket(content)


async def _require_active_catalogue(context: CommandContext) -> Catalogue:
    catalogue = await load_active_catalogue(context.store)
    if catalogue is None:
        mend = "import one: lab-agent catalogue import SOURCE; or name one with --catalogue"
        raise CatalogueError((Problem("store", "holds no catalogue yet", mend),))
    return catalogue
