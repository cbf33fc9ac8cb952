"""`python -m engine serve plan.json`: load the plan's model and answer on 127.0.0.1.

Standard output carries events only, one JSON object a line. So before anything else is imported, descriptor 1 is
kept for them and replaced: whatever a library prints lands in the log on standard error.
"""

import os
import sys


def _set_stdout_aside() -> int:
    """Keep the real standard output; everything that prints goes to standard error from now on."""
    if sys.stderr is None:  # no console and no pipe: nobody reads the log
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - stays open for good
    if sys.stdout is None:
        sys.stdout = sys.stderr
        return os.open(os.devnull, os.O_WRONLY)
    sys.stdout.flush()
    events = os.dup(1)
    os.dup2(sys.stderr.fileno(), 1)
    sys.stdout = sys.stderr
    return events


def main() -> None:
    """Entry point; ends the process itself, because threads of drivers and servers must not hold it up."""
    events = _set_stdout_aside()
    from engine.serve.arguments import Arguments, ArgumentsError, parse
    from engine.system.parent_guard import follow

    arguments: Arguments | ArgumentsError
    try:
        arguments = parse(sys.argv[1:])
    except ArgumentsError as misuse:
        arguments = misuse
    else:
        if arguments.parent_pid is not None and arguments.parent_create_time is not None:
            follow(arguments.parent_pid, arguments.parent_create_time)
    from engine.serve.process import EngineProcess

    code = EngineProcess(events).run(arguments)
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
