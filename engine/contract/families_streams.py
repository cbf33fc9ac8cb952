"""Several residual streams: the weights that join them before a block and spread its answer over them again.

Letters: S streams, M model width.
"""

from collections.abc import Callable
from dataclasses import replace

from engine.contract.families_anatomy import Anatomy, AnatomyRule, DenseCount, Family
from engine.contract.families_facts import ConfigFacts


def with_streams(family: Family, key: str, once: Callable[[Anatomy, int], DenseCount]) -> AnatomyRule:
    """A family with as many streams as `key` says; `once(anatomy, streams)` is what it has more around its layers."""

    def rule(facts: ConfigFacts, tied: bool) -> Anatomy:
        anatomy = family(facts, tied)
        streams = facts.required(key)
        return replace(anatomy, embedding=anatomy.embedding + once(anatomy, streams), streams=streams)

    return rule


def hyper_connection(streams: int, width: int, *, fp32: bool) -> DenseCount:
    """One manifold-constrained hyper-connection: a projection of all streams to 2 · S + S² weights, bias and scales.

    `fp32` says whether the projection stays in fp32; bias and scales always do (deepseek_v4, glm5_next).
    """
    mixed = (2 + streams) * streams
    projection = mixed * streams * width
    return DenseCount(0 if fp32 else projection, mixed + 3 + (projection if fp32 else 0))


def independent_connection(streams: int, width: int) -> DenseCount:
    """The same without mixing the streams with each other, all in fp32 (hy_v4)."""
    return DenseCount(fp32=2 * streams * streams * width + 2 * streams + 2)


def hyper_head(anatomy: Anatomy, streams: int) -> DenseCount:
    """What joins the streams behind the last layer, in fp32 (deepseek_v4, hy_v4)."""
    width = anatomy.hidden_size
    return DenseCount(fp32=streams * streams * width + streams + 1)
