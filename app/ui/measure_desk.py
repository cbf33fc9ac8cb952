"""Measuring from the Split page: begun by a click only, called off by another, and its result said in words."""

from PySide6.QtCore import QObject, Signal

from app.core.measuring import Measured, Measuring, MeasuringCancelledError
from app.link.measurement import Measurement
from app.ui.measure_words import result_notice
from app.ui.notices import of_problem
from app.ui.split_inputs import SplitInputs
from app.ui.split_speed import known_speed, missing_formats, wanted_formats
from engine.contract.errors import SplitpinError


class MeasureDesk(QObject):
    """Signals:
    changed: `state` is another one.
    read_wanted: the machine is to be read anew, for what was learned or is free again.
    reported: there is a result to show (Notice).
    """

    changed = Signal()
    read_wanted = Signal()
    reported = Signal(object)

    def __init__(self, measurement: Measurement, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._measurement = measurement
        self._found: Measured | None = None  # and not told yet: the plan that is made with it comes first
        measurement.changed.connect(self.changed)
        measurement.done.connect(self._done)
        measurement.failed.connect(self._failed)

    @property
    def state(self) -> Measuring | None:
        """What is being measured; None: nothing."""
        return self._measurement.state

    def measure(self, inputs: SplitInputs) -> None:
        """Measure what is not known of this PC and is needed for the model on the page."""
        if inputs.measurable:
            formats = missing_formats(inputs) or wanted_formats(inputs)
            self._measurement.begin(pins=inputs.pins_measurable, formats=formats)

    def cancel(self) -> None:
        """Call it off."""
        self._measurement.cancel()

    def tell(self, inputs: SplitInputs) -> None:
        """The page was planned anew: say what was found, once."""
        found, self._found = self._found, None
        if found is None:
            return
        speed = None if inputs.plan is None else known_speed(inputs, inputs.plan)
        if (notice := result_notice(found, inputs.quota, speed)) is not None:
            self.reported.emit(notice)

    def _done(self, found: Measured) -> None:
        self._found = found
        self.read_wanted.emit()

    def _failed(self, error: SplitpinError) -> None:
        self.read_wanted.emit()
        if not isinstance(error, MeasuringCancelledError):
            self.reported.emit(of_problem(error.problem, severity="warn"))
