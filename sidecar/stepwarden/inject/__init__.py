"""Brings the agent into processes of other people: `python -m stepwarden.inject DEST` copies it."""
