"""Faults on demand: what a network, a proxy or a busy service does to a client, played by route, chance, count or script."""
