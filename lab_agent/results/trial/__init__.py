"""The workbench: what a captured message of a laboratory system would become, and what its map and the tables lack for it."""
