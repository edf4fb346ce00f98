"""
The watches, one file each: what is followed in the user's process beside gradients and loss.

To add one, write its class in a file here and name it in `WATCHES`.
"""

from stepwarden.agent.watch import Watch
from stepwarden.agent.watches.checking import Checking
from stepwarden.agent.watches.course import CourseWatch
from stepwarden.agent.watches.layers import Layers
from stepwarden.agent.watches.recompute import Recompute

WATCHES: tuple[type[Watch], ...] = (
    Layers,
    Checking,
    CourseWatch,
    Recompute,
)
