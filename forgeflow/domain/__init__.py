"""What ForgeFlow means, without I/O, clock or randomness: `now` and jitter come in as arguments.

May import errors only.
"""
