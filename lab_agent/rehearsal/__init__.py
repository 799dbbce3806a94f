"""A day of made-up orders through an installation's own settings, catalogue, rules, mappings and adapters; nothing leaves the
machine.

The workflow is the agent's own, on a database that is thrown away. Only what is outside has a stand-in: the exchange service in
memory, and a laboratory system that takes what its adapter would have sent and answers with made-up results.
"""
