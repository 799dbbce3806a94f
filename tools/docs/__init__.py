"""Generators of the documentation pages that are made from the code."""
