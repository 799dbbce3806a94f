"""Benchmarks: each against its floor, in the same run."""
