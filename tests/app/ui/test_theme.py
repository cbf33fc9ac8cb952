"""Colours, fonts and the system's wishes."""

from dataclasses import fields

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QPalette
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.ui.theme import Theme, ui_font
from app.ui.tokens import CONTRAST, DARK, LIGHT, Tokens
from engine.contract.plan import Tier


def luminance(hex_rgb: str) -> float:
    """Relative luminance by WCAG 2."""
    colour = QColor(hex_rgb)
    channels = (colour.redF(), colour.greenF(), colour.blueF())
    parts = [v / 12.92 if v <= 0.03928 else float(((v + 0.055) / 1.055) ** 2.4) for v in channels]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("tokens", [DARK, LIGHT, CONTRAST], ids=lambda tokens: tokens.name)
def test_text_can_be_read_on_every_surface(tokens: Tokens) -> None:
    for surface in (tokens.bg, tokens.surface, tokens.inset):
        assert contrast(tokens.text, surface) >= 7
        assert contrast(tokens.text2, surface) >= 4.5
    for surface in (tokens.bg, tokens.surface, tokens.inset, tokens.raised, tokens.accent_soft, tokens.error_soft):
        assert contrast(tokens.text3, surface) >= 4.5
    for word in (tokens.accent, tokens.warn, tokens.error, tokens.ok):
        assert contrast(word, tokens.surface) >= 4.5
    assert contrast(tokens.on_accent, tokens.accent) >= 4.5
    for soft, word in (
        (tokens.warn_soft, tokens.text2),
        (tokens.error_soft, tokens.text2),
        (tokens.info_soft, tokens.text2),
    ):
        assert contrast(word, soft) >= 4.5


@pytest.mark.parametrize("tokens", [DARK, LIGHT, CONTRAST], ids=lambda tokens: tokens.name)
def test_tiers_stand_out_from_the_card(tokens: Tokens) -> None:
    for tier in Tier:
        assert contrast(tokens.tier(tier), tokens.surface) >= 3


def test_every_token_is_a_colour() -> None:
    for tokens in (DARK, LIGHT, CONTRAST):
        for field in fields(tokens):
            if field.name != "name":
                assert QColor(getattr(tokens, field.name)).isValid(), field.name


def test_another_choice_dresses_the_application_and_tells(qapp: QApplication, qtbot: QtBot) -> None:
    theme = Theme(qapp, "dark")
    with qtbot.waitSignal(theme.changed):
        theme.choose("light")
    assert theme.tokens is LIGHT
    assert qapp.palette().color(QPalette.ColorRole.Window) == QColor(LIGHT.bg)


def test_the_system_choice_follows_the_systems_scheme(qapp: QApplication) -> None:
    system = [Qt.ColorScheme.Dark]
    theme = Theme(qapp, "system", system_scheme=lambda: system[0])
    assert theme.tokens is DARK
    system[0] = Qt.ColorScheme.Light
    qapp.styleHints().colorSchemeChanged.emit(system[0])
    assert theme.tokens is LIGHT


def test_a_fixed_choice_does_not_follow_the_system(qapp: QApplication) -> None:
    theme = Theme(qapp, "light", system_scheme=lambda: Qt.ColorScheme.Dark)
    qapp.styleHints().colorSchemeChanged.emit(Qt.ColorScheme.Dark)
    assert theme.tokens is LIGHT
    theme.choose("system")
    assert theme.tokens is DARK


def test_figures_are_of_one_width(qapp: QApplication) -> None:
    from PySide6.QtGui import QFontMetricsF

    metrics = QFontMetricsF(ui_font(13))
    widths = {metrics.horizontalAdvance(figure * 8) for figure in "0123456789"}
    assert len(widths) == 1
