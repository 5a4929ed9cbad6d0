"""What was published, tried again on the lab's workloads: cells that are trained, races that are timed, and a page."""
