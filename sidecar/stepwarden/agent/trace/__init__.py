"""
What a forward pass computes, operator by operator, as the user's code called them.

Recording keeps no tensor alive and changes no number; where it fails it goes off, and the user's
operator still runs once.
"""

from stepwarden.agent.trace.recorder import Recorder

__all__ = ["Recorder"]
