"""Mapping tables: the laboratory's codes of observations, units and answers, and those of the exchange."""
