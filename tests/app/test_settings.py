"""Settings survive newer versions, broken files and full disks."""

import json
from pathlib import Path

import pytest

from app.planning.wishes import Wishes
from app.settings import Settings, SettingsError, SettingsFile


def test_settings_come_back_as_they_were_saved(tmp_path: Path) -> None:
    file = SettingsFile(tmp_path / "profile" / "settings.json")
    assert file.load().settings == Settings()
    saved = Settings(model_folders=("/m",), wishes={"/m": Wishes(context_tokens=4096)}, theme="dark")
    file.save(saved)
    assert file.load().settings == saved
    assert file.load().problem is None


def test_keys_of_a_newer_version_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text('{"schema_version": 9, "theme": "light", "telescope": {"zoom": 3}}', "utf-8")
    file = SettingsFile(path)
    file.save(file.load().settings.model_copy(update={"theme": "dark"}))
    data = json.loads(path.read_text("utf-8"))
    assert data["telescope"] == {"zoom": 3}
    assert (data["theme"], data["schema_version"]) == ("dark", 9)


@pytest.mark.parametrize(
    "content", [b"{", b"[]", b'{"theme": "purple"}', b'{"port": 99999}', b"\xff\xfe", b"null"], ids=repr
)
def test_a_broken_file_is_kept_aside_and_reported(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "settings.json"
    path.write_bytes(content)
    loaded = SettingsFile(path).load()
    assert loaded.settings == Settings()
    assert loaded.problem is not None and loaded.problem.kind == "settings"
    assert "settings.broken-1.json" in loaded.problem.fix
    assert (tmp_path / "settings.broken-1.json").read_bytes() == content
    assert not path.exists()


def test_a_full_disk_keeps_the_old_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = SettingsFile(tmp_path / "settings.json")
    file.save(Settings(theme="dark"))

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("app.files.os.fsync", full)
    with pytest.raises(SettingsError, match="No space left"):
        file.save(Settings(theme="light"))
    assert file.load().settings.theme == "dark"
