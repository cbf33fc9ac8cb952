"""Several residual streams: the weights that join them before a block and spread its answer over them again.

Letters: S streams, M model width.
"""

from engine.contract.families_anatomy import DenseCount


def hyper_connection(streams: int, width: int, *, fp32: bool) -> DenseCount:
    """One manifold-constrained hyper-connection: a projection of all streams to 2 · S + S² weights, bias and scales.

    `fp32` says whether the projection stays in fp32; bias and scales always do (deepseek_v4, glm5_next).
    """
    mixed = (2 + streams) * streams
    projection = mixed * streams * width
    return DenseCount(0 if fp32 else projection, mixed + 3 + (projection if fp32 else 0))
