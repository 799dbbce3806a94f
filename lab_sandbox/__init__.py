"""The exchange service in a box: an independent reading of the interface, for the demo, the tests and the partners."""
