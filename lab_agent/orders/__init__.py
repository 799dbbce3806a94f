"""Orders: polled, read, assessed, decided, routed, handed over; their Tasks; what an operator decides about them."""
