"""Stepwarden: detect an anomaly of a PyTorch training cheaply, and hold before its damage."""

__version__ = "0.1.0"
