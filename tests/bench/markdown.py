"""Cost of a redraw while a long answer streams in: `python -m tests.bench.markdown`, one JSON line.

Measures the update alone and the update with layout and paint, early and late in the answer. Flat means good.
"""

import json
import os
import statistics
import sys
import time

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtWidgets import QApplication, QScrollArea

from app.ui.theme import Theme
from app.ui.widgets.markdown_view import MarkdownView
from tests.app.ui.markdown_samples import long_answer

CHARACTERS = 24_700  # about 5,000 tokens
PIECE = 20  # about four tokens


def main() -> None:
    app = QApplication(sys.argv)
    theme = Theme(app, "dark")
    area = QScrollArea()
    area.setWidgetResizable(True)
    view = MarkdownView(theme)
    area.setWidget(view)
    area.resize(760, 900)
    area.show()
    text = long_answer(CHARACTERS)
    update_ms: list[float] = []
    whole_ms: list[float] = []
    for start in range(0, len(text), PIECE):
        began = time.perf_counter()
        view.feed(text[start : start + PIECE])
        view.flush()
        updated = time.perf_counter()
        area.verticalScrollBar().setValue(area.verticalScrollBar().maximum())
        app.processEvents()
        update_ms.append(1000 * (updated - began))
        whole_ms.append(1000 * (time.perf_counter() - began))
    tenth = len(update_ms) // 10
    print(
        json.dumps(
            {
                "flushes": len(update_ms),
                "update_ms": _summary(update_ms, tenth),
                "with_paint_ms": _summary(whole_ms, tenth),
            }
        )
    )


def _summary(times_ms: list[float], tenth: int) -> dict[str, float]:
    ordered = sorted(times_ms)
    return {
        "mean": round(statistics.fmean(times_ms), 2),
        "p95": round(ordered[int(0.95 * len(ordered))], 2),
        "first_tenth": round(statistics.fmean(times_ms[:tenth]), 2),
        "last_tenth": round(statistics.fmean(times_ms[-tenth:]), 2),
    }


if __name__ == "__main__":
    main()
