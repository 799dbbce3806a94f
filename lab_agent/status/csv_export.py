"""Lists as CSV files to save: what a spreadsheet would take for a formula gets an apostrophe in front.

What would steer a terminal that shows the file, or reorder what it shows, is an escape.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from starlette.responses import Response

from lab_agent.shared.text import escape_unprintable

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet would take for the beginning of a formula."""


def csv_lines(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The heading and the rows as lines of a CSV file, with what marks it as UTF-8 in front."""
    yield "\ufeff"  # by which spreadsheets know that it is UTF-8
    for values in (columns, *rows):
        written = io.StringIO()
        csv.writer(written).writerow([_harmless(text) for text in values])
        yield written.getvalue()


def _harmless(text: str) -> str:
    shown = escape_unprintable(text)
    return f"'{shown}" if text.startswith(_FORMULA) else shown


def csv_file(name: str, now: datetime, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Response:
    """A CSV file that the browser saves under the name, with the time of the export."""
    headers = {"Content-Disposition": f'attachment; filename="{name}-{now.astimezone():%Y%m%d-%H%M}.csv"'}
    return Response("".join(csv_lines(columns, rows)), media_type="text/csv; charset=utf-8", headers=headers)
