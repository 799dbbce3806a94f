"""The demo: every program of the house as a process on this machine, and the daily flow through all of them."""
