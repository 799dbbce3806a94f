"""Barcodes as the clinic's label printer gives them: each number once, and second barcodes where a study needs one."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

SECOND_LABEL_SHAPES = {"042.036": "0000-0000", "042.075": "0000-0000", "042.076": "000-000-000"}
"""Study code to the shape of its second barcode (interface: order rule 3)."""


class LabelSequence:
    """A roll of labels; no number comes twice from one roll. `first` keeps the rolls of several runs apart."""

    def __init__(self, first: int = 1, digits: int = 10) -> None:
        self._numbers = count(first)
        self._second_numbers = count(first)
        self._digits = digits

    def next_label(self) -> str:
        """The next barcode: digits only."""
        return f"{next(self._numbers):0{self._digits}d}"

    def second_labels(self, studies: Iterable[str]) -> list[str]:
        """The second barcodes that a tube of these studies carries: one for each shape, so at most one in practice."""
        shapes = dict.fromkeys(SECOND_LABEL_SHAPES[study] for study in studies if study in SECOND_LABEL_SHAPES)
        return [fill_shape(shape, next(self._second_numbers)) for shape in shapes]


def fill_shape(shape: str, number: int) -> str:
    """The number in the shape's places, the last digit in the last place: `0000-0000`, 12345 gives `0001-2345`."""
    digits = iter(f"{number:0{shape.count('0')}d}"[-shape.count("0") :])
    return "".join(next(digits) if char == "0" else char for char in shape)
