"""The durable job queue: records, table, claims, leases, dispatcher, runner, retries, outages."""
