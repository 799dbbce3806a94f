"""Watching operation: what is wrong now, since when, and what waits because of it."""
