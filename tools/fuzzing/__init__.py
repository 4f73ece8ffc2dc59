"""The parts of `tools/fuzz.py`: what is sent, what is made of it, and what must hold."""
