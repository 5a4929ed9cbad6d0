"""Notes: what an adaptive policy remembers, as plain values; as text between ranks, as one tensor in a checkpoint."""

import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from laconic.errors import StateError


def as_tensors(notes: Mapping[str, Any]) -> dict[str, Tensor]:
    """For `state_dict`.

    >>> from_tensors(as_tensors({"norms": {"fc.weight": 0.5}}))
    {'norms': {'fc.weight': 0.5}}
    """
    return {"notes": torch.frombuffer(bytearray(json.dumps(dict(notes)).encode()), dtype=torch.uint8).clone()}


def from_tensors(state: Mapping[str, Tensor]) -> dict[str, Any]:
    """What `as_tensors` was given; of a state without notes, nothing."""
    if "notes" not in state:
        return {}
    try:
        content = json.loads(bytes(state["notes"].tolist()))
    except (ValueError, TypeError) as error:
        raise StateError(f"the policy's notes cannot be read: {error}; use an older checkpoint") from None
    return dict(content)
