"""What a command says of how far it has come, however it says it."""

import pytest

from forgeflow.executors.progress import ProgressReader


@pytest.mark.parametrize(
    ("said", "percent", "note"),
    [
        (b"42% half of the invoices\n", 42, "half of the invoices"),
        (b"42%\n", 42, ""),
        (b"  7 %\r\n", 7, ""),
        (b"99.5% almost\n", 99, "almost"),
        (b"only words\n", None, "only words"),
        (b"2026 was a good year\n", None, "2026 was a good year"),
        (b"1% a\n2% b\n3% c\n", 3, "c"),
        (b"10% loading\nstill loading\n", 10, "still loading"),
        (b"10% a\n\n  \n", 10, "a"),
        (b"5% \xff\x00\n", 5, "\ufffd\0"),
    ],
)
def test_last_line_counts(said: bytes, percent: int | None, note: str) -> None:
    reader = ProgressReader()
    assert reader.feed(said)
    assert (reader.percent, reader.note) == (percent, note)


@pytest.mark.parametrize("said", [b"", b"\n", b"  \n\n", b"50% not yet over"])
def test_what_is_no_whole_line_says_nothing(said: bytes) -> None:
    assert not ProgressReader().feed(said)


def test_line_may_come_in_parts() -> None:
    reader = ProgressReader()
    assert [reader.feed(part) for part in (b"4", b"2% a", b" note\n")] == [False, False, True]
    assert (reader.percent, reader.note) == (42, "a note")


@pytest.mark.parametrize("step", [1, 700, 65536])
@pytest.mark.parametrize("line", [b"x" * 200_000, b"10%" + b" " * 1020 + b"secret", b"1%" + b"\t" * 20_000 + b"secret"])
def test_line_that_is_too_long_is_dropped(line: bytes, step: int) -> None:
    reader = ProgressReader()
    data = b"2% before\n" + line + b"\n"
    for at in range(0, len(data), step):
        reader.feed(data[at : at + step])
    assert (reader.percent, reader.note) in ((2, "before"), (None, ""))
    assert reader.feed(b"3% after\n")
    assert (reader.percent, reader.note) == (3, "after")


def test_flood_costs_no_more_than_its_end() -> None:
    reader = ProgressReader()
    reader.feed(b"1% early\n" + b"9% late\n" * 100_000)
    assert (reader.percent, reader.note) == (9, "late")
