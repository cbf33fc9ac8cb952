"""At most two banners, errors first. A notice that is gone takes its banner with it."""

from PySide6.QtCore import Signal
from PySide6.QtGui import QAccessible, QAccessibleEvent
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.ui.notices import DISMISS, Notice, shown
from app.ui.theme import Theme
from app.ui.widgets.banner import Banner
from app.ui.widgets.focus import focusable, tab_after


class BannerStack(QWidget):
    """Signals:
    acted: a button of a banner was pressed (notice, id of the action).
    """

    acted = Signal(object, str)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._notices: tuple[Notice, ...] = ()
        self._dismissed: set[Notice | tuple[str, str]] = set()
        self._banners: list[Banner] = []
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(8)
        self.hide()

    @property
    def banners(self) -> tuple[Banner, ...]:
        return tuple(self._banners)

    def show_notices(self, notices: tuple[Notice, ...]) -> None:
        """Take other notices. A dismissed one stays away until it says something else; other numbers renew no hint."""
        self._notices = notices
        self._dismissed &= {_told(notice) for notice in notices}
        wanted = shown(tuple(notice for notice in notices if _told(notice) not in self._dismissed))
        if wanted == tuple(banner.notice for banner in self._banners):
            return
        kept = {banner.notice: banner for banner in self._banners}
        for banner in self._banners:
            self._column.removeWidget(banner)
        self._banners = [kept.pop(notice) if notice in kept else self._new(notice) for notice in wanted]
        for banner in kept.values():
            banner.hide()
            banner.deleteLater()
        for banner in self._banners:
            self._column.addWidget(banner)
        tab_after(self, (child for banner in self._banners for child in focusable(banner)))
        self.setVisible(bool(self._banners))

    def _new(self, notice: Notice) -> Banner:
        banner = Banner(self._theme, notice)
        banner.acted.connect(lambda action, notice=notice: self._acted(notice, action))
        QAccessible.updateAccessibility(QAccessibleEvent(banner, QAccessible.Event.Alert))
        return banner

    def _acted(self, notice: Notice, action: str) -> None:
        if action == DISMISS:
            self._dismissed.add(_told(notice))
            self.show_notices(self._notices)
        self.acted.emit(notice, action)


def _told(notice: Notice) -> Notice | tuple[str, str]:
    """What a dismissal is about."""
    return (notice.title, notice.about) if notice.severity == "info" else notice
