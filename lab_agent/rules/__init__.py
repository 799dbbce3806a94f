"""Is this order right? Each rule has an id, a severity, its source, a pure check, and a message that a clinic can act on."""
