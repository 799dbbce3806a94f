"""The use cases, on ports alone: what happens to an order and to a result, one step after the other."""
