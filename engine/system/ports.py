"""TCP ports of 127.0.0.1: can one be had, who listens on it, which one is free."""

import errno
import socket
import sys
from dataclasses import dataclass
from enum import StrEnum

import psutil

HOST = "127.0.0.1"
HIGHEST = 65535
_NEAR = 100  # ports tried above the wished one


class PortRefusal(StrEnum):
    """Why a port cannot be had."""

    TAKEN = "taken"
    RESERVED = "reserved"  # Windows: WSAEACCES 10013, a range kept for Hyper-V or WSL; Linux: below 1024


@dataclass(frozen=True, slots=True)
class PortOwner:
    """Who listens; `name` is None where it cannot be read."""

    pid: int
    name: str | None


def try_port(port: int) -> PortRefusal | None:
    """Listen on a port for a moment. None: it can be had."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
        if sys.platform == "win32":
            # without it two programs may share a port on Windows, and nobody knows who is asked
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # closed connections do not keep a port
        try:
            trial.bind((HOST, port))
            trial.listen()
        except OSError as refusal:
            if refusal.errno in (errno.EACCES, getattr(errno, "WSAEACCES", None)):
                # an exclusive listener of somebody else is refused with the same code as a reserved range
                return PortRefusal.TAKEN if port_owner(port) is not None else PortRefusal.RESERVED
            return PortRefusal.TAKEN
    return None


def port_owner(port: int) -> PortOwner | None:
    """Who listens on the port of 127.0.0.1 or of every address; None: nobody, or the system does not tell."""
    try:
        connections = psutil.net_connections(kind="tcp")
    except (psutil.Error, OSError):
        return None
    for connection in connections:
        address = connection.laddr
        if connection.status != psutil.CONN_LISTEN or not address or address.port != port or not connection.pid:
            continue
        if address.ip in (HOST, "0.0.0.0", "::", "::1"):
            return PortOwner(connection.pid, _name(connection.pid))
    return None


def free_port(wished: int) -> int | None:
    """A port near the wished one that can be had now."""
    return next((port for port in range(wished + 1, min(wished + _NEAR, HIGHEST) + 1) if try_port(port) is None), None)


def _name(pid: int) -> str | None:
    try:
        return psutil.Process(pid).name()
    except (psutil.Error, OSError):
        return None
