"""A stand-in laboratory system that works on files: takes orders from one folder, "measures", and drops reports into another.

It does what a laboratory system does and no more: it knows the two folders and their JSON, nothing of the exchange.
"""
