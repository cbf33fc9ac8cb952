"""Requests to end, and the moments in which they wait."""

import os
import signal

import pytest

from app.doors.interrupts import held_back, interruptible

pytestmark = pytest.mark.skipif(os.name == "nt", reason="a process cannot send itself these signals there")
REQUESTS = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if os.name != "nt" else [])]


@pytest.mark.parametrize("request_to_end", REQUESTS)
def test_a_request_to_end_unwinds_and_the_old_handlers_come_back(request_to_end: signal.Signals) -> None:
    was = signal.signal(request_to_end, signal.default_int_handler)  # whoever runs the tests may ignore it
    try:
        with pytest.raises(KeyboardInterrupt), interruptible():
            os.kill(os.getpid(), request_to_end)
        assert signal.getsignal(request_to_end) is signal.default_int_handler
    finally:
        signal.signal(request_to_end, was)


def test_what_the_user_told_to_be_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with interruptible():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_request_waits_until_the_block_is_done() -> None:
    reached = False
    with pytest.raises(KeyboardInterrupt), interruptible(), held_back():
        os.kill(os.getpid(), signal.SIGTERM)
        reached = True
    assert reached
