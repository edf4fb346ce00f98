"""
The watches, one file each: what is followed in the user's process beside gradients and loss.

To add one, write its class in a file here and name it in `WATCHES`.
"""

from stepwarden.agent.watch import Watch

WATCHES: tuple[type[Watch], ...] = ()
