"""The tray in its states, for `python -m tests.gallery`."""

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPixmap
from PySide6.QtWidgets import QApplication

from app.orphans.verdicts import Orphan
from app.ui import tray_glyph
from app.ui.theme import Theme, ui_font
from app.ui.tray import Tray
from app.ui.tray_view import TrayInputs, tray
from tests.app.ui import samples
from tests.app.ui.samples import GLYPHS


def glyph_sheet(theme: Theme) -> QPixmap:
    """The tray glyphs as the taskbar shows them, and eight times as large."""
    sheet = QPixmap(150 * len(GLYPHS) + 20, 230)
    sheet.fill(QColor(theme.tokens.surface if theme.tokens.is_light else theme.tokens.bg))
    painter = QPainter(sheet)
    painter.setFont(ui_font(13))
    painter.setPen(QColor(theme.tokens.text))
    for place, (name, glyph) in enumerate(GLYPHS.items()):
        left = 20 + 150 * place
        painter.drawText(QRectF(left, 8, 140, 20), Qt.AlignmentFlag.AlignVCenter, name)
        x = float(left)
        for px in tray_glyph.SIZES_PX:
            picture = tray_glyph.pixmap(glyph, px, dark_taskbar=not theme.tokens.is_light)
            painter.drawPixmap(QPointF(x, 52 - px / 2), picture)
            x += px + 10
        small = tray_glyph.pixmap(glyph, 16, dark_taskbar=not theme.tokens.is_light)
        painter.drawPixmap(QPointF(left, 85), small.scaled(128, 128))
    painter.end()
    return sheet


def menu_sheet(app: QApplication, theme: Theme, orphan: Orphan) -> QPixmap:
    """The tray menus side by side."""
    views = [
        tray(TrayInputs(samples.ready().session, "MiniMax-M2.5")),
        tray(TrayInputs(samples.changing().session, "MiniMax-M2.5")),
        tray(TrayInputs(samples.stalled().session, "MiniMax-M2.5")),
        tray(TrayInputs(samples.loading().session, "MiniMax-M2.5")),
        tray(TrayInputs(samples.stopped().session, "MiniMax-M2.5", (orphan,))),
        tray(TrayInputs(samples.pins_refused().session, "MiniMax-M2.5", restart="Start with 40 pinned layers")),
    ]
    pictures = []
    for view in views:
        icon = Tray(theme, is_available=lambda: False)
        icon.show_view(view)
        icon.menu.popup(app.primaryScreen().geometry().topLeft())
        app.processEvents()
        pictures.append(icon.menu.grab())
        icon.menu.close()
        icon.close()
    sheet = QPixmap(sum(p.width() + 20 for p in pictures) + 20, max(p.height() for p in pictures) + 40)
    sheet.fill(QColor(theme.tokens.bg))
    painter = QPainter(sheet)
    x = 20
    for picture in pictures:
        painter.drawPixmap(x, 20, picture)
        x += picture.width() + 20
    painter.end()
    return sheet
