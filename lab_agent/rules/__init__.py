"""Is this order right? Rules as data: an id, a severity, a source, a pure function, a message a clinic can act on."""
