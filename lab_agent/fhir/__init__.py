"""The STU3 subset on the wire: resources into the order as received, results into resources. Pure: no I/O."""
