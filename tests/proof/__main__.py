"""`python -m tests.proof [NAME ...] [--share N] [--again | --variants] [--jobs N] [--write]`: run the proofs, print their table.

A proof that has held with the same files and share is not run again, so an interrupted run goes on where it was. In full, each
proof has to find all of its known-bad variants; a shorter run tries one of every fourth proof, others on each day. Each one's log
and result lie in build/proof/, in `full`, `short` or a folder for another share, with the table as `table.md` and `table.json`.
Exit code 0: nothing has failed (what could not run here is told); 1: something has; 130: it was interrupted.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path

from tests.harness.paths import ROOT
from tests.proof.pages import write_pages
from tests.proof.plan import PROOFS
from tests.proof.results import describe_machine, format_table, load_result, missing_reasons
from tests.proof.runner import ProofRun

_BUILD = ROOT / "build" / "proof"
_SHORT = 0.05
_FAILED, _INTERRUPTED = 1, 130


def main() -> int:
    given = _parser().parse_args()
    by_name = {each.name: each for each in PROOFS}
    if unknown := sorted(set(given.names) - set(by_name)):
        _parser().error(f"there is no proof {', '.join(unknown)}; there are {', '.join(by_name)}")
    chosen = [each for each in PROOFS if not given.names or each.name in given.names]
    folder = _folder(given.share)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
            signal.signal(number, signal.default_int_handler)
    run = ProofRun(folder, share=given.share, again=given.again, variants_only=given.variants)
    results = run.run(chosen, given.jobs)
    kept = {each.name: found for each in PROOFS if (found := load_result(folder, each.name)) is not None} | results
    heading = f"{given.share:g} of the full length, {datetime.now(UTC):%Y-%m-%d}, {describe_machine()}"
    (folder / "table.md").write_text(f"{heading}\n\n{format_table(PROOFS, kept)}\n")
    (folder / "table.json").write_text(json.dumps([each.describe() for each in kept.values()], indent=2) + "\n")
    if given.write:
        write_pages(_BUILD)
    print(f"\n{heading}\n\n{format_table(chosen, results)}")  # noqa: T201
    for reason in missing_reasons(results.values()):
        print(f"could not run here: {reason}")  # noqa: T201
    if run.is_interrupted:
        return _INTERRUPTED
    return _FAILED if any(each.fails for each in results.values()) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make proof", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(each.name for each in PROOFS))
    parser.add_argument("--share", type=_parse_share, default=1.0, help="how much of each runs: above 0, up to 1 (the default)")
    parser.add_argument("--again", action="store_true", help="run what has held before, too")
    parser.add_argument("--variants", action="store_true", help="of what was run before, only the known-bad variants again")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    parser.add_argument(
        "--write", action="store_true", help="put the figures of the fullest runs into docs/reliability.md and README.md"
    )
    return parser


def _parse_share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise argparse.ArgumentTypeError(f"{text} is no number above 0 and up to 1, such as 0.2 for a fifth")
    return share


def _folder(share: float) -> Path:
    return _BUILD / {1.0: "full", _SHORT: "short"}.get(share, f"share-{share:g}")


if __name__ == "__main__":
    sys.exit(main())
