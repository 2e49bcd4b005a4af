"""What a worker's code has, told to the database."""

import hashlib
from collections.abc import Sequence


def catalogue_id(functions: Sequence[str]) -> str:
    """The same for workers of the same code, whatever node they are of."""
    return hashlib.sha256("\0".join(functions).encode()).hexdigest()
