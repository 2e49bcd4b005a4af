"""Who is forked and who retired: the one rule, played through without a process."""

import random
from uuid import uuid4

import pytest

from forgeflow.config import Config
from forgeflow.domain.node import Node
from forgeflow.master.children import Child, Generation, Role
from forgeflow.master.population import is_missing, surplus
from forgeflow.process.link import Link

LINK, _ = Link.pair()


def worker(number: int, generation: int = 1, **state: object) -> Child:
    node = Node(uuid4(), "node", "host", "machine", 1, ("worker",), 4, "0")
    child = Child(number, number, Role.WORKER, Generation(generation, Config(), node), LINK, 0.0, is_ready=True)
    for name, value in state.items():
        setattr(child, name, value)
    return child


def test_idle_goes_before_busy_and_old_before_fresh() -> None:
    busy, idle = worker(1), worker(2, idle_since=5.0)
    fresh = worker(3, generation=2, idle_since=4.0)
    assert surplus([busy, idle, fresh], 2, 2) is idle
    assert surplus([busy, idle, fresh], 1, 2) is idle
    idle.is_retiring = True
    assert surplus([busy, idle, fresh], 1, 2) is busy
    busy.is_retiring = True
    assert surplus([busy, idle, fresh], 1, 2) is None


def test_one_that_is_not_ready_replaces_nobody() -> None:
    assert surplus([worker(1), worker(2, generation=2, is_ready=False)], 1, 2) is None


def test_worn_one_is_replaced_before_it_goes() -> None:
    worn, others = worker(1, is_worn=True), [worker(2), worker(3)]
    assert is_missing([worn, *others], 3, 1)
    assert surplus([worn, *others], 3, 1) is None
    assert surplus([worn, *others, worker(4)], 3, 1) is worn


def test_candidate_of_the_next_generation_is_nobodys_replacement() -> None:
    """Before it has taken over, it is not counted as one that serves."""
    children = [worker(1), worker(2), worker(3, generation=2)]
    assert surplus(children, 2, 1) is None
    assert not is_missing(children, 2, 1)


@pytest.mark.parametrize("seed", range(200))
def test_roll_ends_with_the_wanted_number_and_never_too_many_or_too_few(seed: int) -> None:
    """Runs end, children die and become ready in any order; the wanted number may have changed, too."""
    draw = random.Random(seed)
    before, wanted = draw.randint(1, 6), draw.randint(1, 6)
    children = [worker(number, idle_since=draw.choice([None, 1.0])) for number in range(before)]
    children.append(worker(100, generation=2))  # the candidate, adopted
    number, limit, least = 200, max(before, wanted) + 1, min(before, wanted)
    for _ in range(400):
        while child := surplus(children, wanted, 2):
            child.is_retiring = True
        if is_missing(children, wanted, 2):
            children.append(worker(number, generation=2, is_ready=False))
            number += 1
        assert len(children) <= limit
        assert sum(child.is_ready and not child.is_retiring for child in children) >= least
        booting = [child for child in children if not child.is_ready]
        leaving = [child for child in children if child.is_retiring]
        if booting and draw.random() < 0.7:
            draw.choice(booting).is_ready = True
        if leaving and draw.random() < 0.3:
            children.remove(draw.choice(leaving))
    assert [child.generation.number for child in children] == [2] * wanted
