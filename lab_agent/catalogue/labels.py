"""Where the barcodes of tubes come from.

The interface allows none (`label: null`): the partner then uses barcodes of its own, as agreed with the laboratory. That is
what `NoLabels` answers. A pool that reserves numbers implements the same port.
"""

from __future__ import annotations

from typing import Protocol

from lab_agent.catalogue.basket import Basket
from lab_agent.catalogue.tubes import Tube


class LabelSource(Protocol):
    """Gives one label, or None, for each tube, in their order; the same basket asked again gets the same labels."""

    def labels(self, basket: Basket, tubes: tuple[Tube, ...]) -> tuple[str | None, ...]:
        """Give the labels of these tubes."""
        ...


class NoLabels:
    """No labels: the partner uses its own."""

    def labels(self, basket: Basket, tubes: tuple[Tube, ...]) -> tuple[str | None, ...]:  # noqa: ARG002 - the port's shape
        """Give None for each tube."""
        return (None,) * len(tubes)
