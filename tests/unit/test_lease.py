"""The fence: what must have happened before a lease may pass."""

import os

from hypothesis import given, settings
from hypothesis import strategies as st

from forgeflow.domain.lease import Fence
from forgeflow.process.page import SharedPage


def test_default_fence_stops_jobs_five_seconds_before_the_end_and_kills_them_one_second_before_it() -> None:
    fence = Fence(duration=30.0, margin=5.0, grace=3.0)
    end = fence.lease_end(100.0)
    assert (end, fence.fence_at(end), fence.last_call(end)) == (130.0, 125.0, 129.0)
    assert fence.may_begin(end, 124.9)
    assert not fence.may_begin(end, 125.0)


@settings(derandomize=True)
@given(st.floats(0.1, 1000), st.floats(0.1, 0.9), st.floats(0.1, 0.9), st.floats(0, 1e9))
def test_worker_kills_before_the_master_and_the_master_before_the_end(
    duration: float, margin_share: float, grace_share: float, sent_at: float
) -> None:
    margin = duration * margin_share
    fence = Fence(duration, margin, margin * grace_share)
    end = fence.lease_end(sent_at)
    assert fence.fence_at(end) < fence.fence_at(end) + fence.grace <= fence.last_call(end) < end


def test_shared_page_words_are_shared_over_a_fork_and_do_not_touch_each_other() -> None:
    page = SharedPage(3)
    pid = os.fork()
    if pid == 0:
        page.set_lease_end(1, 123456.789)
        os._exit(0)
    os.waitpid(pid, 0)
    assert [page.lease_end(slot) for slot in range(3)] == [0.0, 123456.789, 0.0]
    page.set_lease_end(1, 0.0)
    assert page.lease_end(1) == 0.0
