"""Left-over engine processes: verdicts and ending them."""
