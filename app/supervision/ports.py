"""The port of the engine: tried before a start, and named with its owner if it is taken."""

from collections.abc import Callable, Sequence

from engine.contract.errors import FixOption, Problem, SplitpinError
from engine.contract.processes import RunEntry
from engine.system.ports import PortRefusal, free_port, port_owner, try_port

Runs = Callable[[], Sequence[RunEntry]]


class PortTakenError(SplitpinError):
    """The wished port cannot be had. `owner_pid` and `owner_name` say who listens there, None where that is hidden."""

    kind = "port"

    def __init__(self, *, port: int, refusal: PortRefusal, runs: Sequence[RunEntry] = ()) -> None:
        owner = port_owner(port) if refusal is PortRefusal.TAKEN else None
        other = free_port(port)
        ours = owner is not None and any(
            run.port == port and owner.pid in (run.engine.pid, *(child.pid for child in run.children)) for run in runs
        )
        match refusal:
            case PortRefusal.RESERVED:
                why = "the system keeps it for itself and gives it to no program"
            case PortRefusal.TAKEN if ours and owner is not None:
                why = f"another engine of Splitpin (PID {owner.pid}) listens there"
            case PortRefusal.TAKEN if owner is not None:
                why = f"{owner.name or 'a program'} (PID {owner.pid}) listens there"
            case _:
                why = "another program listens there"
        super().__init__(
            f"Port {port} of 127.0.0.1 cannot be used: {why}.",
            f"Use port {other}, or 0 for any free one." if other else "Use port 0 for any free one.",
            port=port,
            owner_pid=None if owner is None else owner.pid,
            owner_name=None if owner is None else owner.name,
            free_port=other,
        )
        wanted = other or 0
        sentence = f"Use port {wanted}" if wanted else "Use any free port"
        self.fixes = (FixOption(change="port", sentence=sentence, numbers={"port": wanted}),)


def check_port(port: int, runs: Runs) -> None:
    """Try a port before an engine is started for nothing; 0 is any free one and always good.

    Raises:
        PortTakenError: it cannot be had.
    """
    if port != 0 and (refusal := try_port(port)) is not None:
        raise PortTakenError(port=port, refusal=refusal, runs=runs())


def explain_taken_port(problem: Problem, runs: Runs) -> Problem:
    """What the engine reports of a port it did not get, with the owner; any other problem as it is."""
    port = problem.numbers.get("port")
    if problem.kind != PortTakenError.kind or not isinstance(port, int):
        return problem
    refusal = try_port(port)
    return problem if refusal is None else PortTakenError(port=port, refusal=refusal, runs=runs()).problem
