"""Single rooms."""
