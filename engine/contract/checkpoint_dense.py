"""What every token uses, from the headers of weight files: its type where config.json names none, and its bytes."""

from collections import Counter
from collections.abc import Iterable, Sequence

from engine.contract.checkpoint_headers import TensorEntry
from engine.contract.checkpoint_packed import sort_packed, unpacked_values
from engine.contract.errors import ModelFileError
from engine.contract.formats import WeightFormat

VALUE_BYTES = {WeightFormat.FP32: 4, WeightFormat.BF16: 2, WeightFormat.FP16: 2}
_FLOATS = frozenset({"F64", "F32", "BF16", "F16"})
_PLAIN = {"F32": WeightFormat.FP32, "BF16": WeightFormat.BF16, "F16": WeightFormat.FP16}
_TIED_HEAD = "lm_head.weight"
_SAMPLES = 16
_SAMPLE_BYTES = 4096


def plain_format_of_files(entries: Iterable[TensorEntry]) -> WeightFormat | None:
    """The type that most plain numbers are stored in; None where there are none."""
    values: Counter[WeightFormat] = Counter()
    for entry in entries:
        if entry.dtype in _PLAIN:
            values[_PLAIN[entry.dtype]] += entry.values
    return values.most_common(1)[0][0] if values else None


def without_tied_head(entries: Sequence[TensorEntry]) -> list[TensorEntry]:
    """The dense tensors that a model holds whose output head is its embedding, according to config.json.

    transformers keeps one of the two if only one is stored or both are the same, and both if they differ
    (`PreTrainedModel.tie_weights`). Whether they are the same is judged by samples: two that were trained apart differ
    everywhere.

    Raises:
        ModelFileError: a file could not be read.
    """
    head = next((entry for entry in entries if entry.name.endswith(_TIED_HEAD)), None)
    if head is None or not any(_same(head, entry) for entry in entries if entry is not head):
        return list(entries)
    return [entry for entry in entries if entry is not head]


def _same(head: TensorEntry, entry: TensorEntry) -> bool:
    if (head.dtype, head.shape) != (entry.dtype, entry.shape):
        return False
    step = max(head.nbytes // _SAMPLES, 1)
    return all(_sample(head, start) == _sample(entry, start) for start in range(0, head.nbytes, step))


def _sample(entry: TensorEntry, start: int) -> bytes:
    try:
        with entry.file.open("rb") as stream:
            stream.seek(entry.offset + start)
            return stream.read(min(_SAMPLE_BYTES, entry.nbytes - start))
    except OSError as cause:
        raise ModelFileError(
            f"{entry.file.name} cannot be read: {cause.strerror or cause}.",
            "Copy or download this file again.",
            file=entry.file.name,
        ) from cause


def dense_bytes_of_files(
    entries: Iterable[TensorEntry], plain: WeightFormat, fp32_names: tuple[str, ...], bits: int
) -> int:
    """Bytes of the dense weights in memory: numbers take the model's own type or fp32, packed ones are unpacked."""

    def value_bytes(name: str) -> int:
        return 4 if any(part in f"{name}$" for part in fp32_names) else VALUE_BYTES[plain]

    found = sort_packed(entries)
    as_stored = sum(
        entry.values * value_bytes(name) if entry.dtype in _FLOATS else entry.nbytes
        for name, entry in found.plain.items()
    )
    return as_stored + sum(unpacked_values(tensor, bits) * value_bytes(name) for name, tensor in found.packed.items())
