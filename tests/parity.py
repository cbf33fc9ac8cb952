"""`python -m tests.parity [family ...]`: every family on every split, printed; 1 if anything differs."""

import argparse
import logging
import sys
import tempfile
import time
from pathlib import Path

import torch

from tests.support.parity import SPLITS, compare
from tests.support.tiny_families import TINY_FAMILIES, tiny_family


def main() -> int:
    """Print one line a family and split."""
    parser = argparse.ArgumentParser(prog="tests.parity", description=__doc__)
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=f"default: all {len(TINY_FAMILIES)}")
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    began_s, bad = time.monotonic(), 0
    print(f"{'family':24}{'split':8}{'max difference':>16}{'tokens':>10}{'bytes':>10}")
    for family in options.families or TINY_FAMILIES:
        with tempfile.TemporaryDirectory() as place:
            checkpoint = tiny_family(family, Path(place) / family)
            for split in SPLITS:
                found = compare(checkpoint, split)
                tokens = "equal" if found.tokens_equal else "DIFFER"
                sizes = "equal" if found.bytes_equal else "DIFFER"
                print(f"{family:24}{split:8}{found.max_difference:16.2e}{tokens:>10}{sizes:>10}  {found.difference}")
                bad += not found.good
    print(f"{len(options.families or TINY_FAMILIES)} families, {bad} differences, {time.monotonic() - began_s:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
