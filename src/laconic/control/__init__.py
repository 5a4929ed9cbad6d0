"""Who decides when: agreement among ranks, the controller that changes plans, and the record of a run."""
