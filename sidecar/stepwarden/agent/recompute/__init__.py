"""Activation checkpointing: what a part computed in the forward pass, and once more for backward."""
