"""What left-over processes and other programs hold, as the planner wants to know it."""

from app.orphans.verdicts import Verdicts
from app.planning.held import Held
from app.planning.others import Program


def held_by(verdicts: Verdicts) -> tuple[Held, ...]:
    """Left-over trees that are provably ours, by the process to name when one is offered for ending."""
    return tuple(
        Held(
            pid=orphan.pids[0],
            name=orphan.name,
            ram_bytes=orphan.rss_bytes or 0,
            vram_bytes=orphan.gpu_bytes or 0,
            pinned_bytes=orphan.gpu_shared_bytes or 0,
        )
        for orphan in verdicts.orphans
        if orphan.confidence == "ours"
    )


def programs_of(verdicts: Verdicts) -> tuple[Program, ...]:
    """Programs that are not left over, with what they hold."""
    return tuple(Program(use.name, use.rss_bytes, use.gpu_bytes) for use in verdicts.programs)
