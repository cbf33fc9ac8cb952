"""Tests; the tree mirrors the product's."""
