"""Asks for a model folder with the dialogs of the system."""

from collections.abc import Callable
from pathlib import Path

from PySide6.QtWidgets import QFileDialog, QWidget

from engine.contract.checkpoint import holds_several_models

PickFolder = Callable[[QWidget], Path | None]


def pick_folder(parent: QWidget) -> Path | None:
    """Ask for a model folder with the system's own dialog, and for a file where it holds several GGUF models."""
    chosen = QFileDialog.getExistingDirectory(parent, "Add a model folder")
    if not chosen:
        return None
    if not holds_several_models(Path(chosen)):
        return Path(chosen)
    file, _ = QFileDialog.getOpenFileName(parent, "Choose one of the models", chosen, "GGUF models (*.gguf)")
    return Path(file) if file else None
