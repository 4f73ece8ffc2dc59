"""A small, real serving system whose decisions are pure code, and the lab that teaches it."""

__version__ = "0.1.0"
