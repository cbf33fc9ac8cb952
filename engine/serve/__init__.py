"""The engine's doors: session, HTTP, OpenAI-compatible API."""
