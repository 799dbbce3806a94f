"""Results in: a message split into its groups, each read as a report of one test or one isolate."""
