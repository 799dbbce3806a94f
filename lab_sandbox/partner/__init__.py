"""The partner's side of the exchange: a clinic's information system, as far as the daily flow needs it.

The demo and tests use it. It follows the interface document independently and shares no code with the laboratory's side.
"""
