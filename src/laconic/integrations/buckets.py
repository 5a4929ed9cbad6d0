"""DDP's buckets, cut smaller (planning/buckets.py says why and how small).

DDP offers no way to choose again once it is made; what is done here is what it does itself when it is unpickled.
"""

import logging
from dataclasses import replace
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from laconic.planning.buckets import cap

log = logging.getLogger(__name__)


def cut_smaller(model: DistributedDataParallel) -> None:
    """Smaller buckets for a model that has not trained yet, unless whoever made it chose their size."""
    trained = [p for p in model.module.parameters() if p.requires_grad]
    limit = cap(sum(p.numel() * p.element_size() for p in trained))
    chosen = not getattr(model, "bucket_bytes_cap_default", False)
    if chosen or limit >= model.bucket_bytes_cap or any(p.grad is not None for p in trained):
        return
    before = {name: getattr(model, name) for name in ("bucket_bytes_cap", "_bucket_config") if hasattr(model, name)}
    try:
        model.bucket_bytes_cap = limit
        if "_bucket_config" in before:
            model._bucket_config = replace(before["_bucket_config"], bucket_bytes_cap=limit)
        _reduce_anew(model)
    except (AttributeError, TypeError) as error:  # another torch: its buckets do as they are
        for name, value in before.items():
            setattr(model, name, value)
        log.debug("laconic: DDP's buckets stay as they are, torch %s: %s", torch.__version__, error)


def _reduce_anew(model: Any) -> None:  # nothing of this has types
    """Another reducer in place of the one that DDP made for itself; the old one's hooks go with it."""
    parameters, sparse = model._build_params_for_reducer()
    names = model._build_debug_param_to_name_mapping(parameters)
    model._ddp_init_helper(parameters, sparse, names, model.static_graph)
    if model.static_graph:
        model.reducer._set_static_graph()
        model.logger._set_static_graph()
