"""Where gradients come from."""
