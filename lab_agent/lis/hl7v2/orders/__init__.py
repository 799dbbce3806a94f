"""Orders out: messages made by the field map, sent once, and what the LIS answered to them."""
