"""
The watches, one file each: what is followed in the user's process beside gradients and loss.

To add one, write its class in a file here and name it in `WATCHES`.
"""

from stepwarden.agent.watch import Watch
from stepwarden.agent.watches.accumulation import AccumulationWatch
from stepwarden.agent.watches.autocast import AutocastWatch
from stepwarden.agent.watches.checking import Checking
from stepwarden.agent.watches.course import CourseWatch
from stepwarden.agent.watches.encoders import Encoders
from stepwarden.agent.watches.epochs import EpochWatch
from stepwarden.agent.watches.freezing import Freezing
from stepwarden.agent.watches.layers import Layers
from stepwarden.agent.watches.movement import Movement
from stepwarden.agent.watches.ownership import Ownership
from stepwarden.agent.watches.progress import Progress
from stepwarden.agent.watches.random_state import RandomStateWatch
from stepwarden.agent.watches.recompute import Recompute
from stepwarden.agent.watches.replaying import Replaying
from stepwarden.agent.watches.replica import ReplicaWatch
from stepwarden.agent.watches.scaling import ScalingWatch
from stepwarden.agent.watches.truncation import TruncationWatch
from stepwarden.agent.watches.tying import Tying
from stepwarden.agent.watches.vanishing import Vanishing

WATCHES: tuple[type[Watch], ...] = (
    Progress,
    Layers,
    Checking,
    CourseWatch,
    Recompute,
    RandomStateWatch,
    Replaying,
    ReplicaWatch,
    EpochWatch,
    TruncationWatch,
    ScalingWatch,
    AutocastWatch,
    Vanishing,
    Encoders,
    AccumulationWatch,
    Movement,
    Freezing,
    Ownership,
    Tying,
)
