"""A limit with the sum it comes from, so that the window can show every term."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Term:
    """One line of a sum; what is taken away is negative."""

    what: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Budget:
    """The most bytes of one pool a plan may take. None: not limited, or not known."""

    bytes: int | None
    terms: tuple[Term, ...] = ()


def summed(*terms: Term) -> Budget:
    """The budget that the terms add up to; never below zero. Terms of zero bytes are left out."""
    return Budget(max(0, sum(term.bytes for term in terms)), tuple(term for term in terms if term.bytes))


UNLIMITED = Budget(None)


def layers(count: int) -> str:
    """ "1 layer", "12 layers"."""
    return f"{count} layer{'' if count == 1 else 's'}"
