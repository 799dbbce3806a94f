"""The words of the house: orders, lines, results and their states. Pure: no I/O, no tables, no HTTP."""
