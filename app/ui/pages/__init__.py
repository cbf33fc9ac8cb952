"""One file a page of the window."""
