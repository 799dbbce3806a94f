"""What everything stands on: errors, ids, values, states, times, text, files, HTTP, the log."""
