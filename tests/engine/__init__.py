"""The engine over a world in this process."""
