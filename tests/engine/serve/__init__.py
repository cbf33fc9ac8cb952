"""The engine over real HTTP and as a process."""
