"""Lists as CSV files to save: what a spreadsheet would take for a formula gets an apostrophe in front."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from starlette.responses import Response

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet would take for the beginning of a formula."""


def csv_lines(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The heading and the rows as lines of a CSV file, with what marks it as UTF-8 in front."""
    yield "\ufeff"  # by which spreadsheets know that it is UTF-8
    for values in (columns, *rows):
        written = io.StringIO()
        csv.writer(written).writerow([f"'{text}" if text.startswith(_FORMULA) else text for text in values])
        yield written.getvalue()


def csv_file(name: str, now: datetime, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Response:
    """A CSV file that the browser saves under the name, with the time of the export."""
    headers = {"Content-Disposition": f'attachment; filename="{name}-{now.astimezone():%Y%m%d-%H%M}.csv"'}
    return Response("".join(csv_lines(columns, rows)), media_type="text/csv; charset=utf-8", headers=headers)
