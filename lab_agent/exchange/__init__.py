"""The only package that talks to the exchange service."""
