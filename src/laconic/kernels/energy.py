"""The energy of a layer, |x|^2: a number; on a device a tensor, so that the host need not wait for it."""

from torch import Tensor

Energy = float | Tensor
