"""Puts the figures of the fullest runs into docs/reliability.md and the README."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tests.harness.paths import ROOT
from tests.proof.plan import HEADLINES, PROOFS
from tests.proof.results import format_headlines, format_table, load_published, load_result, save_published

_PAGE, _README = ROOT / "docs" / "reliability.md", ROOT / "README.md"
_PUBLISHED = _PAGE.with_suffix(".json")
_PICTURES = {"soak": "soak.svg"}
"""What a proof draws beside its figures."""
_BEGIN, _END = "<!-- proof table -->", "<!-- end of the proof table -->"


def write_pages(kept: Path) -> None:
    """Publish what is better than what was published before, of the runs kept in the folders of `kept`.

    Raises `ValueError` for a page without a place for it.
    """
    results = load_published(_PUBLISHED)
    for proof in PROOFS:
        for folder in filter(Path.is_dir, sorted(kept.iterdir())):
            found = load_result(folder, proof.name)
            if found is not None and found.is_better_than(results.get(proof.name)):
                results[proof.name] = found
                if (picture := _PICTURES.get(proof.name)) and (drawn := folder / picture).exists():
                    shutil.copyfile(drawn, ROOT / "docs" / "images" / picture)
    save_published(_PUBLISHED, PROOFS, results)
    machines = "; ".join(sorted({each.machine for each in results.values()}))
    _write_page(_PAGE, f"On {machines}. Each row stands for the commit it names.\n\n{format_table(PROOFS, results)}")
    _write_page(_README, format_headlines(HEADLINES, results))


def _write_page(page: Path, text: str) -> None:
    old = page.read_text()
    new, times = re.subn(f"(?s){_BEGIN}.*{_END}", lambda _: f"{_BEGIN}\n\n{text}\n\n{_END}", old)
    if times != 1:
        raise ValueError(f"{page} has no place for the table")
    page.write_text(new)
