"""The engine as a child process: start, events, stop, run ledger. Qt-free."""
