"""Result documents: checked with the configured limit, and printed as PDF if that is configured.

The PDF library takes a while to import, so only installations that print import it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from typing_extensions import override

from lab_agent.lis.lab_messages import LabReport
from lab_agent.results.document_check import find_content_defect
from lab_agent.results.documents import DocumentDefect, Documents
from lab_agent.settings.groups import ResultsSettings
from lab_agent.shared.errors import Problem

if TYPE_CHECKING:
    from lab_agent.results.pdf_report import Letterhead


class DocumentService(Documents):
    """Checks and prints by the settings of this installation."""

    def __init__(self, settings: ResultsSettings) -> None:
        self._settings = settings
        if settings.print_reports:
            self._letterhead()  # what is configured is imported when the program starts, not at the first report

    @override
    def find_defect(self, content: bytes, content_type: str) -> DocumentDefect | None:
        return find_content_defect(content, content_type, self._settings.max_document)

    @override
    def render_pdf(self, report: LabReport, heading: str, codes: Sequence[str] = ()) -> bytes | None:
        if not self._settings.print_reports:
            return None
        from lab_agent.results.pdf_report import print_report  # noqa: PLC0415 - see above

        return print_report(report, heading, self._letterhead(), codes)

    def problems(self) -> tuple[Problem, ...]:
        """What keeps reports from being printed, by setting; nothing if none are to be printed."""
        if not self._settings.print_reports:
            return ()
        from lab_agent.results.pdf_report import letterhead_problems  # noqa: PLC0415 - see above

        return letterhead_problems(self._letterhead())

    def _letterhead(self) -> Letterhead:
        from lab_agent.results.pdf_report import Letterhead  # noqa: PLC0415 - see above

        return Letterhead(name=self._settings.print_name, logo=self._settings.print_logo, font=self._settings.print_font)
