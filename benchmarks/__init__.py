"""Benchmarks: each part of the programs against its floor, measured in the same run (`make bench`)."""
