"""Colour plus texture, so that the four tiers stay apart without colour: plain, dot, hatch, dashed outline."""

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QPainter, QPainterPath, QPen

from app.ui.theme import color
from app.ui.tokens import Tokens
from engine.contract.plan import Tier

_HATCH_STEP_PX = 5.0
_PIN_HEAD_PX = 3.2


def rounded(rect: QRectF, radius: float) -> QPainterPath:
    """A rounded rectangle as a path."""
    path = QPainterPath()
    path.addRoundedRect(rect, radius, radius)
    return path


def paint_tier(
    painter: QPainter, rect: QRectF, tier: Tier, tokens: Tokens, *, radius: float = 2.5, texture: bool = True
) -> None:
    """Fill `rect` with the look of a tier. Narrow or low rectangles get no pin head."""
    if tier is Tier.PAGEABLE:
        paint_hollow(painter, rect, tokens, radius=radius)
        return
    path = rounded(rect, radius)
    painter.fillPath(path, color(tokens.tier(tier)))
    if not texture:
        return
    if tier is Tier.LOCKED:
        _hatch(painter, rect, path, tokens)
    elif tier is Tier.PINNED and 6 <= rect.width() <= 40 and rect.height() >= 12:
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(color(tokens.mark, 215 if tokens.is_light else 120))
        painter.drawEllipse(QPointF(rect.center().x(), rect.bottom() - 6.5), _PIN_HEAD_PX / 2, _PIN_HEAD_PX / 2)


def paint_hollow(painter: QPainter, rect: QRectF, tokens: Tokens, *, radius: float = 2.5) -> None:
    """The look of memory that should not be there: pageable layers and left-over processes."""
    painter.fillPath(rounded(rect, radius), color(tokens.pageable, 46))
    pen = QPen(color(tokens.pageable), 1.3)
    pen.setDashPattern([2.2, 1.6])
    painter.setPen(pen)
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.drawRoundedRect(rect.adjusted(0.65, 0.65, -0.65, -0.65), radius, radius)


def _hatch(painter: QPainter, rect: QRectF, path: QPainterPath, tokens: Tokens) -> None:
    painter.save()
    painter.setClipPath(path, Qt.ClipOperation.IntersectClip)  # a cell that fills is clipped already
    painter.setPen(QPen(color(tokens.mark, 150 if tokens.is_light else 95), 1.5))
    x = rect.left() - rect.height()
    while x < rect.right():
        painter.drawLine(QPointF(x, rect.bottom()), QPointF(x + rect.height(), rect.top()))
        x += _HATCH_STEP_PX
    painter.restore()
