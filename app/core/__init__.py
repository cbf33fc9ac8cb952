"""State of the launcher as values; Qt-free."""
