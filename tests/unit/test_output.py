"""What is kept of a run's output."""

import codecs
import random

import pytest

from forgeflow.domain.run import Output
from forgeflow.executors.output import OutputKeeper, clean_text


def keep(data: bytes, limit: int, *, chunk: int = 7) -> OutputKeeper:
    keeper = OutputKeeper(limit)
    for start in range(0, len(data), chunk):
        keeper.feed(data[start : start + chunk])
    return keeper


def test_short_output_is_kept_whole_as_the_head() -> None:
    output = keep(b"hello\n", 100).output()
    assert (output.head, output.tail, output.total_bytes) == ("hello\n", "", 6)


def test_output_of_exactly_the_limit_is_kept_whole() -> None:
    output = keep(b"0123456789", 10).output()
    assert (output.head, output.tail) == ("0123456789", "")


def test_long_output_keeps_both_ends_and_counts_all() -> None:
    output = keep(b"a" * 50 + b"b" * 1000 + b"c" * 50, 100).output()
    assert (output.head, output.tail, output.total_bytes) == ("a" * 50, "c" * 50, 1100)


@pytest.mark.parametrize("chunk", [1, 3, 64, 10_000])
def test_chunks_make_no_difference(chunk: int) -> None:
    data = random.Random(5).randbytes(5000)
    assert keep(data, 256, chunk=chunk).output() == keep(data, 256, chunk=5000).output()


def test_memory_stays_within_the_limit() -> None:
    keeper = keep(b"x" * 100_000, 100, chunk=10)
    assert len(keeper._head) + len(keeper._tail) <= 200


def test_nul_and_broken_utf8_become_replacement_characters() -> None:
    assert clean_text(b"a\0b\xffc\xed\xa0\x80") == "a\ufffdb\ufffdc\ufffd\ufffd\ufffd"


def test_character_across_the_seam_of_head_and_tail_is_whole() -> None:
    assert keep("aé".encode() * 3, 10, chunk=1).output().head == "aéaéaé"


def test_character_that_the_cut_halved_is_dropped() -> None:
    output = keep("ééééé".encode() + b"x" * 100 + "ééééé".encode(), 10).output()
    assert (output.head, output.tail) == ("éé", "éé")


def test_broken_bytes_at_the_cut_are_still_shown() -> None:
    assert clean_text(b"\x80\x80\x80\x80\x80", cut_before=True).startswith("\ufffd")


def test_no_output_is_nothing() -> None:
    assert OutputKeeper(10).output() == Output()


@pytest.mark.parametrize("cut_after", [False, True])
def test_text_is_what_the_incremental_decoder_makes_of_it(cut_after: bool) -> None:
    """The plain function is the quicker one; it must treat a halved character alike."""
    random_bytes = random.Random(7)
    for _ in range(2000):
        data = bytes(random_bytes.choices(b"a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xff\xed\xa0", k=8))
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        assert clean_text(data, cut_after=cut_after) == decoder.decode(data, final=not cut_after)
