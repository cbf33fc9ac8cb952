"""Where Splitpin keeps its own files. Nothing is created before somebody writes."""

import sys
from dataclasses import dataclass
from pathlib import Path

import platformdirs

APP_NAME = "Splitpin"
DEMO_MODEL_NAME = "splitpin-demo-8x135m"


def user_data_dir() -> Path:
    """The user's own data folder of Splitpin: %LOCALAPPDATA%\\Splitpin, ~/.local/share/Splitpin."""
    return Path(platformdirs.user_data_dir(APP_NAME, appauthor=False))


def models_dir() -> Path:
    """Where Splitpin itself puts models; models of the user stay where they are."""
    return user_data_dir() / "models"


def demo_model_dir() -> Path:
    """The demo model. It does not belong to a profile: every profile shares it."""
    return models_dir() / DEMO_MODEL_NAME


def program_dir() -> Path:
    """The folder that holds the packages `app` and `engine`."""
    return Path(__file__).resolve().parent.parent


def engine_dirs() -> tuple[str, ...]:
    """Folders whose programs can only be Splitpin's: an interpreter inside the program's own folder.

    Empty where Splitpin runs on a Python that other programs use as well; its engines are then recognised by their
    command line and by the run ledger.
    """
    program = program_dir()
    own = Path(sys.prefix)  # not resolved: the interpreter of a virtual environment is often a link to a shared one
    return (str(program),) if own == program or program in own.parents else ()


@dataclass(frozen=True, slots=True)
class Profile:
    """One set of settings, chats, runs and logs."""

    folder: Path

    @classmethod
    def default(cls) -> "Profile":
        """The profile of the user who is logged on."""
        return cls(user_data_dir())

    @property
    def settings_file(self) -> Path:
        return self.folder / "settings.json"

    @property
    def chats_file(self) -> Path:
        return self.folder / "chats.db"

    @property
    def learned_file(self) -> Path:
        """What runs and measurements taught about this PC."""
        return self.folder / "learned.json"

    @property
    def shapes_file(self) -> Path:
        """What was read of model folders; may be deleted at any time."""
        return self.folder / "shapes.json"

    @property
    def runs_dir(self) -> Path:
        """The run ledger, and a folder for each run with its plan and its log."""
        return self.folder / "runs"

    @property
    def logs_dir(self) -> Path:
        return self.folder / "logs"
