"""The domain: orders, lines, reports, jobs and their states. Pure: no I/O, no tables, no HTTP."""
