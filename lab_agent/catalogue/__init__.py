"""What the laboratory offers, and the arithmetic of a basket. Pure, but for `load`."""
