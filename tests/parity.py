"""`python -m tests.parity [family ...]`: family by split by format, printed; 1 if anything differs.

Families of transformers in fp32 and bf16; packed experts and GGUF files of every architecture, each against the stock
model with the weights they stand for. In 16 bits differences are root mean squares: `compare` says how they are judged.
"""

import argparse
import logging
import sys
import tempfile
import time
from pathlib import Path

import torch

from tests.support.parity import SPLITS, compare
from tests.support.parity_table import all_rows


def main() -> int:
    """Print one line for each family, format and split."""
    parser = argparse.ArgumentParser(prog="tests.parity", description=__doc__)
    parser.add_argument("families", nargs="*", metavar="FAMILY", help="only these")
    parser.add_argument("--format", action="append", metavar="FORMAT", help="only formats that begin so; repeatable")
    options = parser.parse_args()
    rows = [
        row
        for row in all_rows()
        if (not options.families or row.family in options.families)
        and (options.format is None or row.stored.lower().startswith(tuple(form.lower() for form in options.format)))
    ]
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    began_s, bad = time.monotonic(), 0
    print(f"{'family':22}{'format':34}{'split':7}{'max difference':>15}{'allowed':>10}{'tokens':>8}{'bytes':>8}")
    for row in rows:
        with tempfile.TemporaryDirectory() as place:
            checkpoint, judge = row.make(Path(place))
            for split in SPLITS:
                found = compare(checkpoint, split, judge=judge, dtype=row.dtype)
                tokens = "equal" if found.tokens_equal else "DIFFER"
                sizes = "equal" if found.bytes_equal else "DIFFER"
                print(
                    f"{row.family:22}{row.stored:34}{split:7}{found.max_difference:15.2e}{found.allowed:10.1e}"
                    f"{tokens:>8}{sizes:>8}{'' if found.good else '  BAD'}  {found.difference}".rstrip(),
                    flush=True,
                )
                bad += not found.good
    families = len({row.family for row in rows})
    formats = len({row.stored for row in rows})
    print(
        f"{families} families, {formats} formats, {len(rows) * len(SPLITS)} loads:"
        f" {bad} differences, {time.monotonic() - began_s:.0f} s"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
