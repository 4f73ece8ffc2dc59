"""The gateway under a virtual clock: a minute of 10,000 requests a second in about a second."""
