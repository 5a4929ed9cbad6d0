"""The only door to the network: torch.distributed, or a world within this process."""

from laconic.comm.loopback import Loopback
from laconic.comm.protocol import Comm, Pending

__all__ = ["Comm", "Loopback", "Pending"]
