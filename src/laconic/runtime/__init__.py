"""What happens in a step: buffers, the ledger, packing, rounds, and the engine that joins them."""
