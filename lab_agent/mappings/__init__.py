"""What the laboratory calls its observations, units and answers, and what the exchange calls them: tables, checks, coverage."""
