"""The only room that speaks to the exchange service."""
