"""A page shared by the master and its children: single words that nobody has to ask for.

One line of eight 64-bit words for each slot. A word is written by one side and read by the other, always whole;
two words may be of different moments, so none depends on another. What must be right does not rest on messages that
may be dropped: the end of a worker's lease stands here, and which run of its batch it has begun.
"""

import mmap

_WORDS_PER_SLOT = 8
_LEASE_END, _BEGUN = range(2)
_PLACE_BITS = 16


class SharedPage:
    """Made by the master before it forks; the children inherit the memory."""

    def __init__(self, slots: int) -> None:
        self._memory = mmap.mmap(-1, max(1, slots) * _WORDS_PER_SLOT * 8)
        self._words = memoryview(self._memory).cast("Q")

    def clear(self, slot: int) -> None:
        """The master's, before it gives the slot to a new child."""
        self._words[slot * _WORDS_PER_SLOT + _LEASE_END] = 0
        self._words[slot * _WORDS_PER_SLOT + _BEGUN] = 0

    def set_lease_end(self, slot: int, lease_end: float) -> None:
        """The master's: until when, on CLOCK_BOOTTIME, the worker in this slot owns its runs; 0 means not at all."""
        self._words[slot * _WORDS_PER_SLOT + _LEASE_END] = int(lease_end * 1e9)

    def lease_end(self, slot: int) -> float:
        return self._words[slot * _WORDS_PER_SLOT + _LEASE_END] / 1e9

    def set_begun(self, slot: int, batch: int, place: int, *, is_executing: bool) -> None:
        """The worker's: its batch of that number has come to its run `place`, from 1, 0 to none, which may be alive."""
        word = batch << (_PLACE_BITS + 1) | place << 1 | is_executing
        self._words[slot * _WORDS_PER_SLOT + _BEGUN] = word

    def begun(self, slot: int) -> tuple[int, int, bool]:
        """Number of the batch, place of the run, whether something of it may be alive."""
        word = self._words[slot * _WORDS_PER_SLOT + _BEGUN]
        return word >> (_PLACE_BITS + 1), word >> 1 & (1 << _PLACE_BITS) - 1, bool(word & 1)
