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
        self._dismissed: set[object] = set()  # matters
        self._banners: list[Banner] = []
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(8)
        self.hide()

    @property
    def banners(self) -> tuple[Banner, ...]:
        return tuple(self._banners)

    def show_notices(self, notices: tuple[Notice, ...]) -> None:
        """Take other notices. A dismissed one stays away until it says something else; other numbers are no news: the
        banner on screen says them, and nothing is announced again."""
        self._notices = notices
        self._dismissed &= {notice.matter for notice in notices}
        wanted = shown(tuple(notice for notice in notices if notice.matter not in self._dismissed))
        if wanted == tuple(banner.notice for banner in self._banners):
            return
        before, left = self._banners, list(self._banners)
        self._banners = [self._for(notice, left) for notice in wanted]
        if self._banners == before:
            return
        for banner in left:
            banner.hide()
            banner.deleteLater()
        for banner in before:
            self._column.removeWidget(banner)
        for banner in self._banners:
            self._column.addWidget(banner)
        tab_after(self, (child for banner in self._banners for child in focusable(banner)))
        self.setVisible(bool(self._banners))

    def _for(self, notice: Notice, left: list[Banner]) -> Banner:
        """The banner that says a notice already, or one that can; else a new one."""
        found = next((banner for banner in left if banner.notice == notice), None) or next(
            (banner for banner in left if banner.can_say(notice)), None
        )
        if found is None:
            return self._new(notice)
        left.remove(found)
        found.say(notice)
        return found

    def _new(self, notice: Notice) -> Banner:
        banner = Banner(self._theme, notice)
        banner.acted.connect(lambda action: self._acted(banner.notice, action))
        QAccessible.updateAccessibility(QAccessibleEvent(banner, QAccessible.Event.Alert))
        return banner

    def _acted(self, notice: Notice, action: str) -> None:
        if action == DISMISS:
            self._dismissed.add(notice.matter)
            self.show_notices(self._notices)
        self.acted.emit(notice, action)
