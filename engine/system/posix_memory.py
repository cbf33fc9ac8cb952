"""RAM figures on Linux: /proc/meminfo, bounded by the control group this process runs in."""

import resource
from dataclasses import dataclass
from pathlib import Path

from engine.contract.facts import UNKNOWN, Reading, Source
from engine.contract.units import KIB

MEMINFO = Path("/proc/meminfo")
OVERCOMMIT = Path("/proc/sys/vm/overcommit_memory")
CGROUP_ROOT = Path("/sys/fs/cgroup")
CGROUP_OF_SELF = Path("/proc/self/cgroup")
CAP_IPC_LOCK = 14
STRICT = "2"


@dataclass(frozen=True, slots=True)
class Ram:
    """Usable RAM and what of it can be given out without paging, in bytes, with where each is from."""

    total: int
    available: int
    total_from: str
    available_from: str


@dataclass(frozen=True, slots=True)
class Group:
    """Limit and use of a control group, in bytes."""

    limit: int
    used: int
    where: str


def ram() -> Ram:
    """The machine's RAM, or the control group's share of it where that is smaller (containers)."""
    info = meminfo()
    total, available = info["MemTotal"], info["MemAvailable"]
    read = Ram(total, available, "/proc/meminfo MemTotal", "/proc/meminfo MemAvailable")
    group = control_group()
    if group is None or group.limit >= total:
        return read
    left = max(group.limit - group.used, 0)
    if left >= available:
        return Ram(group.limit, available, group.where, read.available_from)
    return Ram(group.limit, left, group.where, f"{group.where} minus what it uses")


def meminfo() -> dict[str, int]:
    """/proc/meminfo in bytes."""
    lines = (line.split() for line in MEMINFO.read_text("utf-8").splitlines())
    return {name.rstrip(":"): int(value) * (KIB if unit else 1) for name, value, *unit in lines}


def commit_readings() -> tuple[Reading, Reading]:
    """Commit limit and use. Linux keeps to a limit only with vm.overcommit_memory = 2; otherwise there is none."""
    mode = OVERCOMMIT.read_text("utf-8").strip()
    if mode != STRICT:
        return Reading(detail=f"not limited: vm.overcommit_memory is {mode}"), UNKNOWN
    info = meminfo()
    return (
        Reading(value=info["CommitLimit"], source=Source.READ, detail="/proc/meminfo CommitLimit"),
        Reading(value=info["Committed_AS"], source=Source.READ, detail="/proc/meminfo Committed_AS"),
    )


def commit_left_bytes() -> int | None:
    """What may still be allocated; without a strict limit the kernel compares one request with RAM plus swap."""
    limit, used = commit_readings()
    if limit.value is not None and used.value is not None:
        return max(limit.value - used.value, 0)
    info = meminfo()
    return info["MemAvailable"] + info["SwapFree"]


def memlock() -> tuple[Reading, bool]:
    """Bytes one process may lock, and whether nothing limits it. The hard limit counts: we raise the soft one to it."""
    if _may_lock_anything():
        return UNKNOWN, True
    hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    if hard == resource.RLIM_INFINITY:
        return UNKNOWN, True
    return Reading(value=hard, source=Source.READ, detail="getrlimit RLIMIT_MEMLOCK, hard limit"), False


def _may_lock_anything() -> bool:
    for line in Path("/proc/self/status").read_text("utf-8").splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> CAP_IPC_LOCK & 1)
    return False


def control_group() -> Group | None:
    """The tightest memory limit on the way from our control group to the root; None if there is none."""
    found: list[Group] = []
    for line in _lines(CGROUP_OF_SELF):
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            found += _limits(CGROUP_ROOT, path, "memory.max", "memory.current", "inactive_file", "cgroup memory.max")
        elif "memory" in controllers.split(","):
            root = CGROUP_ROOT / "memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            found += _limits(root, path, *names, "cgroup memory.limit_in_bytes")
    return min(found, key=lambda group: group.limit, default=None)


def _limits(root: Path, path: str, limit: str, used: str, cache: str, where: str) -> list[Group]:
    found: list[Group] = []
    parts = Path(path.lstrip("/")).parts
    for depth in range(len(parts), -1, -1):
        folder = root.joinpath(*parts[:depth])
        limit_text = "".join(_lines(folder / limit))
        used_text = "".join(_lines(folder / used))
        if not limit_text.isdigit() or not used_text.isdigit():  # "max", or not visible from inside a container
            continue
        reclaimable = 0  # file cache counts as used, yet goes away when memory is asked for
        for line in _lines(folder / "memory.stat"):
            name, value = line.split()
            if name == cache:
                reclaimable = int(value)
        found.append(Group(int(limit_text), max(int(used_text) - reclaimable, 0), where))
    return found


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text("utf-8").splitlines()
    except OSError:  # not mounted, or not for us
        return []
