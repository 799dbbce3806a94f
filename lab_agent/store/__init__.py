"""The only room that knows our tables.

Steps speak to it through `lab_agent.ports.store`; pages and commands read through `lab_agent.ports.views`.
"""
