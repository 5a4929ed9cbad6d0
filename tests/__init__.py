"""The laws, as tests."""
