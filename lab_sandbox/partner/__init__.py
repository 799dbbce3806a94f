"""The partner's side of the exchange: a clinic's information system, as far as the daily flow needs one.

Demo, tests and benchmarks drive the service with it. It reads the interface document for itself and shares no code with the
laboratory's side.
"""
