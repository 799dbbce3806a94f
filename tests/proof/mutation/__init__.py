"""Mutation testing of the pure packages: mutmut's operators, each change tried in a forked process."""
