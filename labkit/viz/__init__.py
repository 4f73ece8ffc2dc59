"""Pictures: the drawable segments of a trace, and what draws them."""
