"""`python -m app`: the window, or one of the doors without a window. Loads Qt for the window only, and never torch."""

import signal
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the program; `app.doors.entry` has the exit codes."""
    if argv is None and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C while modules load: no traceback, nothing to clean up
    from app.doors.entry import run

    return run(argv)


if __name__ == "__main__":
    sys.exit(main())
