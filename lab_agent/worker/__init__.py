"""When work is done: loops that take jobs from the outbox, a schedule of recurring tasks, outages, and an orderly stop."""
