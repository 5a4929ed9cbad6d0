"""The library's version, which all ranks must share."""

VERSION = "0.1.0"
