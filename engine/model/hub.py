"""transformers, imported so that it stays silent, never asks the network and never runs code from a model folder."""

import os

# both count at import
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DEACTIVATE_ASYNC_LOAD"] = "1"  # tensors are read on the loading thread, so that a cancel is heard

import transformers

transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]

__all__ = ["transformers"]
