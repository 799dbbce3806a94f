"""What every group of pages works with."""

from __future__ import annotations

from lab_agent.status.gate import AccessControl
from lab_agent.status.house import StatusContext
from lab_agent.status.paper import TemplateRenderer


class PageGroup:
    """A group of pages: the parts of the house, the gate before them, and the paper that they are written on."""

    def __init__(self, context: StatusContext, access: AccessControl, renderer: TemplateRenderer) -> None:
        self._context = context
        self._access = access
        self._renderer = renderer
