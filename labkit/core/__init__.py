"""The rulebook: every decision as plain Python that is told the time and never asks it."""
