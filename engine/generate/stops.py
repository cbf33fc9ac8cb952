"""Stop strings: the answer ends before the first of them, and no part of one is ever given out."""


class StopStrings:
    """Text in, text out; holds back an ending that may be the beginning of a stop string."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = stops
        self._held = ""
        self.found = False

    def feed(self, text: str) -> str:
        """The text that is certainly part of the answer. After `found`, nothing more."""
        if self.found:
            return ""
        text = self._held + text
        places = [place for stop in self._stops if (place := text.find(stop)) >= 0]
        if places:
            self.found, self._held = True, ""
            return text[: min(places)]
        keep = len(text) - self._possible_beginning(text)
        self._held = text[keep:]
        return text[:keep]

    def flush(self) -> str:
        """What was held back and came to nothing; the answer has ended."""
        held, self._held = self._held, ""
        return held

    def _possible_beginning(self, text: str) -> int:
        """Length of the longest ending of `text` that begins a stop string."""
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for length in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[-length:]) for stop in self._stops):
                return length
        return 0
