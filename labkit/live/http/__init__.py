"""The front door: an OpenAI-compatible API in front of the live gateway."""
