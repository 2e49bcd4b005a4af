"""Who is to be forked and who to be retired: one rule for start, death, recycling and reload.

A child is fresh when it is of the current generation and neither worn nor retiring. One more child than wanted may
live meanwhile, so that the next one is ready before the one before it goes.
"""

from collections.abc import Collection

from forgeflow.master.children import Child

SURGE = 1


def is_missing(children: Collection[Child], wanted: int, generation: int, *, surge: float = SURGE) -> bool:
    """Whether one more of a role is to be forked; `children` are all of that role."""
    fresh = sum(_is_fresh(child, generation) for child in children)
    return fresh < wanted and len(children) < wanted + surge


def surplus(children: Collection[Child], wanted: int, generation: int) -> Child | None:
    """The child of a role to be retired next: old before fresh, idle before busy, the longest-lived first.

    None while the others would not be enough without it.
    """
    serving = [
        child
        for child in children
        if not child.is_retiring
        and child.generation.number <= generation
        and (child.is_ready or not _is_fresh(child, generation))
    ]
    if len(serving) <= wanted:
        return None
    return min(serving, key=lambda child: (_is_fresh(child, generation), child.idle_since is None, child.number))


def _is_fresh(child: Child, generation: int) -> bool:
    return child.generation.number == generation and not child.is_worn and not child.is_retiring
