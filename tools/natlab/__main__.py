"""`python -m tools.natlab`: run the lab and write its tables into docs/nat.md (`make natlab`)."""

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tools.natlab import cells, survival
from tools.natlab.cells import Cell
from tools.natlab.lab import REPOSITORY
from tools.natlab.matrix import Outcome, classes, summary, sweep, table
from tools.natlab.namespaces import remove_leftovers, why_not

PARTS: Final = ("behaviours", "others", "birthday", "survival")
DOCUMENT: Final = REPOSITORY / "docs" / "nat.md"


def main() -> None:
    """Run the parts that are asked for, all of them by default."""
    parser = argparse.ArgumentParser(prog="python -m tools.natlab", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--tries", type=int, default=10, help="starts of each birthday pair")
    parser.add_argument(
        "--only",
        default="",
        metavar="WORDS",
        help="only cells whose title contains this, such as `APDM+EIF x EIM+EIF`; writes nothing",
    )
    options = parser.parse_args()
    if set(options.parts) - set(PARTS):
        parser.error(f"parts are {', '.join(PARTS)}")
    if options.only and "survival" in options.parts:
        parser.error("survival has no cells for --only to choose from")
    parts = options.parts or [part for part in PARTS if part != "survival" or not options.only]
    reason = why_not()
    if reason:
        sys.exit(f"the lab cannot run here: {reason}")
    for name in remove_leftovers():
        print(f"removed {name}, left behind by a killed run", file=sys.stderr)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # nothing stays behind
    good = True
    pairs: dict[str, Callable[[], list[Cell]]] = {
        "behaviours": cells.behaviour_pairs,
        "others": cells.other_pairs,
        "birthday": lambda: cells.birthday_pairs(options.tries),
    }
    for part in parts:
        if part == "survival":
            text, fine = _survive()
        else:
            chosen = [cell for cell in pairs[part]() if options.only in cell.title]
            if not chosen:
                print(f"\n{part} has no cell with {options.only!r} in its title", flush=True)
                continue
            outcomes = sweep(chosen)
            text, fine = f"{summary(outcomes)}\n\n{table(outcomes)}", _fine(outcomes)
            if part == "behaviours":
                text += f"\n\nBy the paper's classes:\n\n{classes(outcomes)}"
        print(f"\n{part}\n\n{text}\n", flush=True)
        if not options.only:
            DOCUMENT.write_text(replaced(DOCUMENT.read_text(), part, text))
        good = good and fine
    sys.exit(0 if good else 1)


def _fine(outcomes: list[Outcome]) -> bool:
    return all(each.verdict in ("right", "safe") for each in outcomes)


def _survive() -> tuple[str, bool]:
    came = []
    with tempfile.TemporaryDirectory(prefix="natlab-") as folder:
        for each in survival.generations(Path(folder)):
            survival.tell(each)
            came.append(each)
    return survival.table(came), all(each.same for each in came)


def replaced(document: str, part: str, text: str) -> str:
    """The document with another table of this part. ValueError if it has no place for it."""
    begin, end = f"<!-- natlab {part} -->\n", f"<!-- end of natlab {part} -->"
    before, found, rest = document.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{DOCUMENT.name} has no place for the table of {part}")
    return f"{before}{begin}{text}\n{closed}{after}"


if __name__ == "__main__":
    main()
