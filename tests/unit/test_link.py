"""Links: whole messages or none, never blocking."""

from forgeflow.process.link import Link


def test_messages_arrive_whole_and_in_order() -> None:
    ours, theirs = Link.pair()
    assert ours.send("WAKE")
    assert ours.send("RECOVER", child=3, run="x")
    assert theirs.receive() == [{"kind": "WAKE"}, {"kind": "RECOVER", "child": 3, "run": "x"}]
    assert theirs.receive() == []
    assert not theirs.is_closed


def test_full_link_drops_instead_of_blocking() -> None:
    ours, theirs = Link.pair()
    sent = 0
    while ours.send("WAKE"):
        sent += 1
    assert 10 < sent < 100_000
    assert len(theirs.receive()) == sent
    assert ours.send("WAKE")


def test_end_of_the_other_side_is_noticed_after_its_last_word() -> None:
    ours, theirs = Link.pair()
    theirs.send("START", run="last words")
    theirs.close()
    assert ours.receive() == [{"kind": "START", "run": "last words"}]
    assert ours.is_closed
    assert not ours.send("WAKE")
    assert ours.receive() == []


def test_message_that_would_be_cut_is_not_sent() -> None:
    ours, theirs = Link.pair()
    assert not theirs.send("DUE", text="x" * 65536)
    assert theirs.send("DUE", text="x" * 65000)
    assert [len(message["text"]) for message in ours.receive()] == [65000]
