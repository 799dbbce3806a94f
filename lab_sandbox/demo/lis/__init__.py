"""A simulator of a laboratory system (LIS): it takes orders from one folder and writes made-up reports to another.

Like a real LIS it knows only the two folders and their JSON, nothing of the exchange service.
"""
