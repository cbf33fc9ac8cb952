"""Paints the tray glyph: a ring whose arcs are the bytes per tier. Shape carries the state, then colour."""

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QIcon, QPainter, QPen, QPixmap, QPolygonF

from app.ui.tray_view import Glyph
from engine.contract.plan import Tier

SIZES_PX = (16, 20, 24, 32)
_OVERSAMPLING = 8
_RING = QRectF(2.2, 2.2, 11.6, 11.6)  # on a 16 px grid
_GAP_DEGREES = 4.0

_TIERS = {
    True: {Tier.VRAM: "#5C97FF", Tier.PINNED: "#49DDA9", Tier.LOCKED: "#F2B52E", Tier.PAGEABLE: "#FF7A70"},
    False: {Tier.VRAM: "#1547A1", Tier.PINNED: "#14805F", Tier.LOCKED: "#A06C00", Tier.PAGEABLE: "#842B18"},
}


def icon(glyph: Glyph, *, dark_taskbar: bool) -> QIcon:
    """The glyph at every size a tray asks for."""
    made = QIcon()
    for px in SIZES_PX:
        made.addPixmap(pixmap(glyph, px, dark_taskbar=dark_taskbar))
    return made


def pixmap(glyph: Glyph, px: int, *, dark_taskbar: bool) -> QPixmap:
    """One picture of `px` × `px` pixels, painted larger and scaled down."""
    large = QPixmap(px * _OVERSAMPLING, px * _OVERSAMPLING)
    large.fill(Qt.GlobalColor.transparent)
    painter = QPainter(large)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.scale(large.width() / 16, large.height() / 16)
    ink = QColor("#FFFFFF" if dark_taskbar else "#1A1D23")
    match glyph.kind:
        case "ready":
            _paint_tiers(painter, glyph, dark_taskbar=dark_taskbar)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(ink)
            painter.drawEllipse(QPointF(8, 8), 2.0, 2.0)
        case "loading":
            _arc(painter, 0, 360, _faint(ink, 110), 2.4)
            _arc(painter, 0, max(8.0, 360 * glyph.share), ink, 3.0)
        case "stopped":
            painter.setPen(QPen(_faint(ink, 110 if glyph.badge else 170), 2.0))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawEllipse(_RING.adjusted(0.3, 0.3, -0.3, -0.3))
    if glyph.badge:
        _paint_badge(painter, glyph, dark_taskbar=dark_taskbar)
    painter.end()
    keep, smooth = Qt.AspectRatioMode.KeepAspectRatio, Qt.TransformationMode.SmoothTransformation
    return large.scaled(px, px, keep, smooth)


def _faint(ink: QColor, alpha: int) -> QColor:
    made = QColor(ink)
    made.setAlpha(alpha)
    return made


def _arc(painter: QPainter, start: float, span: float, tint: QColor, width: float) -> None:
    """Degrees clockwise from the top."""
    pen = QPen(tint, width)
    pen.setCapStyle(Qt.PenCapStyle.FlatCap)
    painter.setPen(pen)
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.drawArc(_RING, round((90 - start) * 16), round(-span * 16))


def _paint_tiers(painter: QPainter, glyph: Glyph, *, dark_taskbar: bool) -> None:
    total = sum(size for _, size in glyph.shares) or 1
    if len(glyph.shares) == 1:
        _arc(painter, 0, 360, QColor(_TIERS[dark_taskbar][glyph.shares[0][0]]), 3.2)
        return
    start = 0.0
    for tier, size in glyph.shares:
        span = 360 * size / total
        tint = QColor(_TIERS[dark_taskbar][tier])
        _arc(painter, start + _GAP_DEGREES / 2, max(2.0, span - _GAP_DEGREES), tint, 3.2)
        start += span


def _paint_badge(painter: QPainter, glyph: Glyph, *, dark_taskbar: bool) -> None:
    painter.setCompositionMode(QPainter.CompositionMode.CompositionMode_Clear)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(Qt.GlobalColor.black)
    painter.drawEllipse(QPointF(11.6, 11.4), 5.0, 5.0)
    painter.setCompositionMode(QPainter.CompositionMode.CompositionMode_SourceOver)
    if glyph.badge == "error":
        tint = QColor("#FF6B60" if dark_taskbar else "#B8261B")
        painter.setPen(QPen(tint, 2.0, Qt.PenStyle.SolidLine, Qt.PenCapStyle.RoundCap))
        painter.drawLine(QPointF(9.2, 9.0), QPointF(14.2, 14.0))
        painter.drawLine(QPointF(14.2, 9.0), QPointF(9.2, 14.0))
        return
    painter.setBrush(QColor("#F2B52E" if dark_taskbar else "#8F5B00"))
    painter.drawPolygon(QPolygonF([QPointF(11.7, 7.2), QPointF(16, 15.2), QPointF(7.4, 15.2)]))
    painter.setPen(QPen(QColor("#1A1D23" if dark_taskbar else "#FFFFFF"), 1.2))
    painter.drawLine(QPointF(11.7, 10.2), QPointF(11.7, 12.4))
    painter.drawPoint(QPointF(11.7, 14.0))
