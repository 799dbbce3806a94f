"""The worker at the laboratory's end of the exchange: orders in, results out, none lost and none done twice."""
