"""The engine: torch, never Qt. Importing this package loads neither torch nor pydantic."""
