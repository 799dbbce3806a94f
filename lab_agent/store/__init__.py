"""The only room that knows our tables.

Steps speak to it through `lab_agent.ports.repositories`; pages and commands read through `lab_agent.ports.queries`.
"""
