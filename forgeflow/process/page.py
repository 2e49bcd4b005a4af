"""A page shared by the master and its children: single words that nobody has to ask for.

One line of eight 64-bit words for each slot. A word is written by one side and read by the other, always whole;
two words may be of different moments, so none depends on another. What must be right does not rest on messages that
may be dropped: the end of a worker's lease stands here.
"""

import mmap

_WORDS_PER_SLOT = 8
_LEASE_END = 0


class SharedPage:
    """Made by the master before it forks; the children inherit the memory."""

    def __init__(self, slots: int) -> None:
        self._memory = mmap.mmap(-1, max(1, slots) * _WORDS_PER_SLOT * 8)
        self._words = memoryview(self._memory).cast("Q")

    def set_lease_end(self, slot: int, lease_end: float) -> None:
        """The master's: until when, on CLOCK_BOOTTIME, the worker in this slot owns its runs; 0 means not at all."""
        self._words[slot * _WORDS_PER_SLOT + _LEASE_END] = int(lease_end * 1e9)

    def lease_end(self, slot: int) -> float:
        return self._words[slot * _WORDS_PER_SLOT + _LEASE_END] / 1e9
