"""The database: the only package that knows our tables.

The workflow uses it through `lab_agent.ports.repositories`; pages and commands read through `lab_agent.ports.queries`.
"""
