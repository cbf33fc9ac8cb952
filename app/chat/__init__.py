"""Conversations: store and message texts; Qt-free."""
