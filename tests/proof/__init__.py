"""What it survives: long tests with a table of what they counted, and known-bad variants that each of them must find."""
