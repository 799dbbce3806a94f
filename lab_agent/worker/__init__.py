"""When work is done: a dispatcher that takes jobs from the outbox, a schedule of tasks at intervals, outages, an orderly stop."""
