"""Operation: conditions, probes, alerts, notifications, metrics, audit, retention, what runs at intervals."""
