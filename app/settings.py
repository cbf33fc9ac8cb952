"""What the user chose, in one JSON file that can be read, compared and attached to a report."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.files import set_aside, write_atomically
from app.planning.wishes import Wishes
from engine.contract.errors import Problem, SplitpinError
from engine.contract.record import first_fault

SCHEMA_VERSION = 1


class SettingsError(SplitpinError):
    """The settings file cannot be read or written."""

    kind: ClassVar[str] = "settings"


class Settings(BaseModel):
    """All settings. Keys of a newer Splitpin are kept, so that going back and forth loses nothing."""

    model_config = ConfigDict(frozen=True, extra="allow")

    schema_version: int = Field(default=SCHEMA_VERSION, ge=1)
    model_folders: tuple[str, ...] = Field(default=(), description="folders the user added")
    last_model: str | None = Field(default=None, description="folder that was chosen last")
    wishes: dict[str, Wishes] = Field(default_factory=dict, description="model folder to the split chosen for it")
    theme: Literal["system", "light", "dark"] = "system"
    port: int = Field(default=0, ge=0, le=65535, description="of the engine; 0: any free port")
    pin_cap_bytes: int | None = Field(default=None, ge=0, description="limit for pinned memory that the user set")


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Settings as read; `problem` tells what was wrong with the file."""

    settings: Settings
    problem: Problem | None = None


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """Reads and writes settings.json."""

    file: Path

    def load(self) -> LoadedSettings:
        """Read the settings; the defaults where there is no file.

        A broken file is kept under another name and reported, and the defaults are used.
        """
        try:
            text = self.file.read_text("utf-8")
        except FileNotFoundError:
            return LoadedSettings(Settings())
        except (OSError, UnicodeDecodeError) as cause:
            return LoadedSettings(Settings(), self._broken(str(cause)))
        try:
            data: Any = json.loads(text)
            return LoadedSettings(Settings.model_validate(data))
        except ValidationError as cause:
            fault = first_fault(cause)
            return LoadedSettings(Settings(), self._broken(f"{fault.field or 'the file'}: {fault.words}"))
        except ValueError as cause:
            return LoadedSettings(Settings(), self._broken(str(cause)))

    def save(self, settings: Settings) -> None:
        """Write all settings, or leave the old file as it is.

        Raises:
            SettingsError: the disk is full or the folder cannot be written.
        """
        try:
            write_atomically(self.file, settings.model_dump_json(indent=2) + "\n")
        except OSError as cause:
            raise SettingsError(
                f"The settings could not be saved in {self.file}: {cause.strerror or cause}.",
                "Make room on the disk, or check that the folder can be written.",
            ) from cause

    def _broken(self, why: str) -> Problem:
        sentence = f"The settings file could not be understood ({why}); Splitpin uses its defaults."
        try:
            kept = set_aside(self.file)
        except OSError as cause:
            return SettingsError(sentence, f"Repair or delete {self.file}: {cause.strerror or cause}.").problem
        return SettingsError(sentence, f"The old file is kept as {kept.name}; repair it and rename it back.").problem
