"""Results: received, matched, checked, translated, delivered with documents; what an operator decides about them."""
