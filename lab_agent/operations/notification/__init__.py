"""Alerts that leave the machine: e-mail, webhooks, commands, and a dead man's ping."""
