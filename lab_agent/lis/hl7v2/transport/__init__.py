"""MLLP: frames and connections, in whatever pieces the bytes arrive, whoever opens them, within bounds."""
