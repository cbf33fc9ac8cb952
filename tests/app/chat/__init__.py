"""Tests of chats: values, store, Markdown, the stream of events."""
