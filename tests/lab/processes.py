"""Awaiting the end of processes that are not our children."""

import os
import select


def gone(pids: list[int], seconds: float = 20.0) -> bool:
    """Await the end of processes that need not be our children."""
    for pid in pids:
        try:
            watched = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        ended, _, _ = select.select([watched], [], [], seconds)
        os.close(watched)
        if not ended:
            return False
    return True
