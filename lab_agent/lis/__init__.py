"""Laboratory systems: what an adapter is, how adapters are found and guarded, and those that come with the agent."""
