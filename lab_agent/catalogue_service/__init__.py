"""The catalogue in the store, shared by all processes: imported versions, turnaround notices, issued labels."""
