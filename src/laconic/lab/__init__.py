"""A laboratory for slow networks on one machine: hosts with their own addresses, shaped links, real DDP, and races."""
