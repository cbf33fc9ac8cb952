"""The icons of assets/icons, tinted when they are drawn. No icon font, no theme lookup, no network."""

from functools import lru_cache
from pathlib import Path

from PySide6.QtCore import QByteArray, QRectF, QSize, Qt
from PySide6.QtGui import QIcon, QPainter, QPixmap, QPixmapCache
from PySide6.QtSvg import QSvgRenderer

FOLDER = Path(__file__).resolve().parents[2] / "assets" / "icons"
_RATIOS = (1.0, 1.25, 1.5, 2.0)  # the scalings Windows offers
_STROKE = 'stroke-width="1.5"'


@lru_cache(maxsize=64)
def _svg(name: str) -> str:
    return (FOLDER / f"{name}.svg").read_text("utf-8")


def pixmap(name: str, hex_rgb: str, px: int = 20, ratio: float = 1.0, stroke: float = 1.5) -> QPixmap:
    """One icon: `px` logical pixels a side, for a screen of `ratio` device pixels each; `stroke` in units of a
    20 px grid."""
    key = f"splitpin/{name}/{hex_rgb}/{px}/{ratio}/{stroke}"
    drawn = QPixmap()
    if QPixmapCache.find(key, drawn):
        return drawn
    text = _svg(name).replace("currentColor", hex_rgb).replace(_STROKE, f'stroke-width="{stroke}"')
    side = round(px * ratio)
    drawn = QPixmap(QSize(side, side))
    drawn.fill(Qt.GlobalColor.transparent)
    painter = QPainter(drawn)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    QSvgRenderer(QByteArray(text.encode())).render(painter, QRectF(0, 0, side, side))
    painter.end()
    drawn.setDevicePixelRatio(ratio)
    QPixmapCache.insert(key, drawn)
    return drawn


def icon(name: str, hex_rgb: str, px: int = 20, disabled_hex_rgb: str | None = None) -> QIcon:
    """One icon for buttons and menus, sharp at every scaling; `disabled_hex_rgb` tints the disabled state."""
    made = QIcon()
    for ratio in _RATIOS:
        made.addPixmap(pixmap(name, hex_rgb, px, ratio))
        if disabled_hex_rgb is not None:
            made.addPixmap(pixmap(name, disabled_hex_rgb, px, ratio), QIcon.Mode.Disabled)
    return made
