"""The Split page: header, notices, and three cards. It shows a `SplitView` and says what was wished for."""

from collections.abc import Sequence

from PySide6.QtCore import QPoint, Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QMenu, QVBoxLayout, QWidget

from app.core.library import ModelEntry
from app.ui.notices import Notice
from app.ui.pages.split_cards import LayersCard, MemoryCard, TradeCard
from app.ui.split_view import SplitView, Tag
from app.ui.theme import Theme, Weight
from app.ui.widgets.action_button import ActionButton
from app.ui.widgets.banner_stack import BannerStack
from app.ui.widgets.empty_state import EmptyState
from app.ui.widgets.label import ElidedLabel, Label, plain_tip
from app.ui.widgets.menu import round_menu
from app.ui.widgets.model_chooser import ModelChooser
from app.ui.widgets.page_scroll import PageScroll
from app.ui.widgets.pill import Pill
from app.ui.wording import TIER_NAMES
from engine.contract.plan import Tier

_ADD = "add"


class SplitPage(QWidget):
    """Signals:
    stop_wished: the slider stands on another stop (its index).
    context_wished: an exact context in tokens, or None for the largest that fits.
    pinned_wished: a number of layers to pin, or None to fill the quota.
    tier_wished: a tier for one layer, or None to leave it to the planner.
    start_wanted, stop_wanted: the main button.
    apply_wanted, undo_wanted: the change beside the slider is to be made, or to be forgotten.
    measure_wanted, cancel_wanted: a measurement of this PC is to begin, or to end early.
    model_wished: a model folder (Path) was chosen.
    add_model_wanted: a folder is to be added.
    notice_acted: a button of a banner (notice, id).
    """

    stop_wished = Signal(int)
    context_wished = Signal(object)
    pinned_wished = Signal(object)
    tier_wished = Signal(int, object)
    start_wanted = Signal()
    stop_wanted = Signal()
    apply_wanted = Signal()
    undo_wanted = Signal()
    measure_wanted = Signal()
    cancel_wanted = Signal()
    model_wished = Signal(object)
    add_model_wanted = Signal()
    notice_acted = Signal(object, str)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("Page")
        self._theme = theme
        self._view: SplitView | None = None
        scroll = PageScroll("Split")
        column = scroll.column
        self.banners = BannerStack(theme)
        self.banners.acted.connect(self.notice_acted)
        self.trade = TradeCard(theme)
        self.layers = LayersCard(theme)
        self.memory = MemoryCard(theme)
        self.empty = EmptyState(
            theme,
            "models",
            "No model yet",
            "Splitpin runs Mixture-of-Experts models: a folder with config.json and .safetensors files, or GGUF files. "
            "Pick a folder that is already on this PC. Splitpin downloads nothing by itself.",
            (("Add a model folder", _ADD, "primary"),),
        )
        self._header = self._build_header()
        for widget in (self._header, self.banners, self.trade, self.layers, self.memory):
            column.addWidget(widget)
        column.addWidget(self.empty, 1)
        column.addStretch()
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.addWidget(scroll)
        self._connect()

    def _build_header(self) -> QWidget:
        header = QWidget()
        row = QHBoxLayout(header)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(10)
        self.chooser = ModelChooser(self._theme)
        self._subtitle = ElidedLabel("", 13, role="muted")
        self._tags = QHBoxLayout()
        self._tags.setSpacing(6)
        words = QVBoxLayout()
        words.setSpacing(0)
        first = QHBoxLayout()
        first.setSpacing(10)
        first.addWidget(Label("Split", 22, Weight.DemiBold, display=True))
        first.addLayout(self._tags)
        first.addStretch()
        second = QHBoxLayout()
        second.setSpacing(4)
        second.setContentsMargins(0, 0, 0, 0)
        second.addWidget(self.chooser)
        second.addWidget(self._subtitle, 1)
        words.addLayout(first)
        words.addLayout(second)
        row.addLayout(words, 1)
        self.pill = Pill(self._theme)
        self.main_button = ActionButton(self._theme, "Start engine", icon="play", kind="primary")
        row.addWidget(self.pill, 0, Qt.AlignmentFlag.AlignVCenter)
        row.addWidget(self.main_button, 0, Qt.AlignmentFlag.AlignVCenter)
        return header

    def _connect(self) -> None:
        self.chooser.chosen.connect(self.model_wished)
        self.chooser.add_wanted.connect(self.add_model_wanted)
        self.empty.acted.connect(lambda _: self.add_model_wanted.emit())
        self.main_button.clicked.connect(self._main_clicked)
        self.trade.slider.valueChanged.connect(self._slider_moved)
        self.trade.context.entered.connect(lambda count: self.context_wished.emit(count))
        self.trade.marked.connect(self.context_wished)
        self.trade.measure_wanted.connect(self.measure_wanted)
        self.trade.change.apply_wanted.connect(self.apply_wanted)
        self.trade.change.undo_wanted.connect(self.undo_wanted)
        self.layers.pinned_wished.connect(self.pinned_wished)
        self.layers.strip.menu_wanted.connect(self._open_tier_menu)

    def show_models(self, entries: Sequence[ModelEntry], current: ModelEntry | None) -> None:
        """The list of models and the chosen one; without any, the page is the invitation to add one."""
        self.chooser.show_models(entries, current)
        self._header.setVisible(bool(entries))
        self.empty.setVisible(not entries)

    def show_view(self, view: SplitView) -> None:
        """Paint another state. No signal is emitted."""
        old, self._view = self._view, view
        self._subtitle.say(view.subtitle)
        if old is None or old.tags != view.tags:
            self._show_tags(view.tags)
        self.pill.show_pill(view.pill)
        if old is None or old.button != view.button:
            button = view.button
            self.main_button.show_as(button.text, icon=button.icon, kind=button.kind, hint=button.hint)
            self.main_button.setEnabled(button.enabled)
        self.chooser.setEnabled(view.can_choose)
        has_cards = bool(view.strip.cells)
        for card in (self.trade, self.layers, self.memory):
            card.setVisible(has_cards)
        if has_cards:
            self.trade.show_view(view)
            self.layers.show_view(view)
            self.memory.show_view(view)

    def show_notices(self, notices: tuple[Notice, ...]) -> None:
        self.banners.show_notices(notices)

    @property
    def tags(self) -> tuple[str, ...]:
        """What the header warns of: a simulated GPU, a recorded machine."""
        return () if self._view is None else tuple(tag.text for tag in self._view.tags)

    def _show_tags(self, tags: tuple[Tag, ...]) -> None:
        while (item := self._tags.takeAt(0)) is not None:
            if (widget := item.widget()) is not None:
                widget.deleteLater()
        for tag in tags:
            label = Label(tag.text, 11, Weight.Medium, role="tag")
            label.setToolTip(plain_tip(tag.hint))
            label.setAccessibleDescription(tag.hint)
            self._tags.addWidget(label, 0, Qt.AlignmentFlag.AlignVCenter)

    def _main_clicked(self) -> None:
        match self._view.button.action if self._view is not None else "start":
            case "stop":
                self.stop_wanted.emit()
            case "measuring":
                self.cancel_wanted.emit()
            case _:
                self.start_wanted.emit()

    def _slider_moved(self, value: int) -> None:
        self.stop_wished.emit(value)

    def _open_tier_menu(self, layer: int, spot: QPoint) -> None:
        menu = self.tier_menu(layer)
        if menu is not None:
            menu.popup(spot)

    def tier_menu(self, layer: int) -> QMenu | None:
        """The menu of one layer; None where there is nothing to choose."""
        view = self._view
        if view is None or not view.pinned.enabled:
            return None
        cell = next((cell for cell in view.strip.cells if cell.layer == layer), None)
        if cell is None:
            return None
        menu = round_menu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        for tier in (Tier.VRAM, Tier.PINNED, Tier.LOCKED):
            action = menu.addAction(f"Layer {layer}: {TIER_NAMES[tier]}")
            action.setCheckable(True)
            action.setChecked(cell.forced and cell.asked is tier)
            action.triggered.connect(lambda _=False, tier=tier: self.tier_wished.emit(layer, tier))
        menu.addSeparator()
        free = menu.addAction("Let Splitpin choose")
        free.setEnabled(cell.forced)
        free.triggered.connect(lambda: self.tier_wished.emit(layer, None))
        return menu
