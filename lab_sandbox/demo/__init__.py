"""The demo: all programs of the project as processes on this machine, and the daily flow through them."""
