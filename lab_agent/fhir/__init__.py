"""The STU3 subset on the wire: resources as the order received, results as resources. Pure: no I/O."""
