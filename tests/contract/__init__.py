"""Every compressor and every route, held to one contract."""
