"""The schema's history, one file for each step; run by `lab_agent.store.schema`."""
