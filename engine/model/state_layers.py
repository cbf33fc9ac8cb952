"""Cache layers of linear attention, Mamba and short convolutions: states of fixed size, allocated once."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers.cache_utils import LinearAttentionLayer
from typing_extensions import override

from engine.contract.errors import PlanMismatchError
from engine.contract.shape import StateShape
from engine.model.kv_layers import IndexedKvLayer, KvArguments, KvLayer


class StateLayer(LinearAttentionLayer):
    """transformers' own layer with its buffers given: it copies into them, and so a long prompt goes on in chunks."""

    def __init__(self, state: StateShape, buffers: Sequence[Tensor]) -> None:
        """`buffers`: one for each tensor of `state`, with its sizes after a batch of one."""
        _adopt(self, state, buffers)

    @override
    def lazy_initialization(self, *args: Any, **kwargs: Any) -> None:
        raise PlanMismatchError("The model keeps a state that the plan does not count.", "Plan the start again.")

    @override
    def update_conv_state(
        self, conv_states: Tensor, state_idx: int = 0, conv_kernel_size: int | None = None, **kwargs: Any
    ) -> Tensor:
        _check(self.conv_states, state_idx, conv_states, -1, conv_kernel_size)
        return super().update_conv_state(conv_states, state_idx, conv_kernel_size, **kwargs)

    @override
    def update_recurrent_state(self, recurrent_states: Tensor, state_idx: int = 0, **kwargs: Any) -> Tensor:
        _check(self.recurrent_states, state_idx, recurrent_states, None, None)
        return super().update_recurrent_state(recurrent_states, state_idx, **kwargs)

    def seek(self, place: int, tokens: int) -> None:
        """A state has no places; what it holds is copied in by whoever goes on with another sequence."""

    def move(self, source: int, target: int, tokens: int) -> None:
        """A state has no places."""

    def state_parts(self) -> list[Tensor]:
        """Memory that belongs to the current sequence alone, as bytes."""
        held = [*self.conv_states.values(), *self.recurrent_states.values()]
        return [buffer.view(-1).view(torch.uint8) for buffer in held if buffer is not None]

    @property
    def state_nbytes(self) -> int:
        """Bytes of the states."""
        return sum(part.nbytes for part in StateLayer.state_parts(self))


class KvStateLayer(StateLayer, KvLayer):  # type: ignore[no-untyped-call]
    """A layer with attention and states beside it."""

    is_compileable = False
    is_croppable = False
    _attention: ClassVar[type[KvLayer]] = KvLayer

    def __init__(self, state: StateShape, buffers: Sequence[Tensor], kv: KvArguments):
        """`kv`: what the layer of attention takes."""
        self._attention.__init__(self, *kv)
        StateLayer.__init__(self, state, buffers)

    @override
    def reset(self) -> None:
        StateLayer.reset(self)
        self._attention.reset(self)

    @override
    def seek(self, place: int, tokens: int) -> None:
        self._attention.seek(self, place, tokens)

    @override
    def move(self, source: int, target: int, tokens: int) -> None:
        self._attention.move(self, source, target, tokens)

    @override
    def state_parts(self) -> list[Tensor]:
        return [*StateLayer.state_parts(self), *self._attention.state_parts(self)]


class IndexedKvStateLayer(KvStateLayer, IndexedKvLayer):  # type: ignore[no-untyped-call]
    """The same where attention chooses its tokens."""

    _attention = IndexedKvLayer


def _adopt(layer: Any, state: StateShape, buffers: Sequence[Tensor]) -> None:
    """Fill the fields of transformers' layer as if the first update had happened and been undone."""
    kinds = [tensor.kind for tensor in state.tensors]
    states = max(kinds.count("convolution"), kinds.count("recurrent"))
    LinearAttentionLayer.__init__(layer, number_of_states=states)
    numbers = {"convolution": 0, "recurrent": 0}
    for kind, buffer in zip(kinds, buffers, strict=True):
        number = numbers[kind]
        numbers[kind] += 1
        layer.device = buffer.device
        if kind == "convolution":
            layer.dtype = buffer.dtype
            layer.conv_states[number] = buffer
            layer.conv_kernel_size[number] = buffer.shape[-1]
            layer.is_conv_states_initialized[number] = True
        else:
            layer.recurrent_states[number] = buffer
            layer.is_recurrent_states_initialized[number] = True


def _check(held: dict[int, Tensor | None], number: int, new: Tensor, free_axis: int | None, kernel: int | None) -> None:
    """Refuse a state of another size or type than was planned, instead of casting it on the way.

    Raises:
        PlanMismatchError: the plan counts something else.
    """
    buffer = held.get(number)
    if buffer is None:
        raise PlanMismatchError(
            f"The model keeps a state {list(new.shape)} that the plan does not count.", "Plan the start again."
        )
    wanted, actual = list(buffer.shape), list(new.shape)
    if free_axis is not None:
        actual[free_axis] = wanted[free_axis] if kernel is None else kernel
    if wanted != actual or buffer.dtype != new.dtype:
        raise PlanMismatchError(
            f"The model keeps a state {actual} of {new.dtype}; the plan counts {wanted} of {buffer.dtype}.",
            "Plan the start again.",
        )
