"""Lines on the pipe: one JSON object each, UTF-8, no line breaks inside."""

from pydantic import ValidationError

from engine.contract.errors import WireError
from engine.contract.events import EVENTS, WIRE_VERSION, Command, Event, Hello, Stop

_FIX = "Reinstall Splitpin so that launcher and engine are of the same version."


def encode(message: Event | Command) -> bytes:
    """One message as one line, line feed included."""
    return message.model_dump_json().encode() + b"\n"


def decode_event(line: bytes) -> Event:
    """Read one line of the engine's stdout.

    Raises:
        WireError: not JSON, an unknown event, or fields that do not fit.
    """
    try:
        return EVENTS.validate_json(line)
    except ValidationError as cause:
        text = line[:120].decode(errors="replace").strip()
        raise WireError(f"The engine said something that is not an event: {text!r}.", _FIX) from cause


def decode_command(line: bytes) -> Command:
    """Read one line of the engine's stdin.

    Raises:
        WireError: not a known command.
    """
    try:
        return Stop.model_validate_json(line)
    except ValidationError as cause:
        raise WireError(f"The launcher sent an unknown command: {line[:120]!r}.", _FIX) from cause


def check_hello(first: Event) -> Hello:
    """The handshake: the first event must be a `Hello` of our wire version.

    Raises:
        WireError: another event, or another version.
    """
    if not isinstance(first, Hello):
        raise WireError(f"The engine began with {first.event!r} instead of 'hello'.", _FIX)
    if first.wire != WIRE_VERSION:
        raise WireError(
            f"The engine speaks version {first.wire} of the protocol; this launcher speaks {WIRE_VERSION}.",
            _FIX,
            engine_wire=first.wire,
            launcher_wire=WIRE_VERSION,
        )
    return first
