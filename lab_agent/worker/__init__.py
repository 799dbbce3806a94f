"""When steps run: groups of workers on the outbox, a schedule of ticks, signals, and the end of the day."""
