"""What is kept of a run's output."""

import base64
import codecs
import itertools
import random
import re
import threading
from collections.abc import Callable
from typing import Any, Self, SupportsIndex
from urllib.parse import quote, quote_plus

import pytest

from forgeflow.domain.run import Output
from forgeflow.executors.output import PIECE_BYTES, OutputKeeper, Piece, clean_text
from forgeflow.executors.secrets import Mask


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


# Pieces of what goes on


def pieces(keeper: OutputKeeper, *parts: bytes) -> list[Piece]:
    """What is taken after each part, and in the end."""
    found = []
    for part in parts:
        keeper.feed(part)
        found.append(keeper.take_piece())
    return [piece for piece in [*found, keeper.take_piece(is_last=True)] if piece]


def test_pieces_are_what_came_since_the_last_one() -> None:
    assert pieces(OutputKeeper(1000), b"one\n", b"", b"two\n") == [Piece(0, "one\n"), Piece(4, "two\n")]


def test_character_cut_at_the_end_of_a_piece_waits_for_the_next() -> None:
    start, end = b"a\xe2\x82", b"\xacb"
    assert pieces(OutputKeeper(1000), start, end) == [Piece(0, "a"), Piece(1, "€b")]


def test_character_that_is_never_finished_is_in_the_last_piece() -> None:
    assert pieces(OutputKeeper(1000), b"a\xe2\x82") == [Piece(0, "a"), Piece(1, "\ufffd")]


def test_more_than_a_piece_holds_is_its_newest_part_after_a_gap() -> None:
    keeper = OutputKeeper(10 * PIECE_BYTES)
    found = pieces(keeper, b"start", b"x" * PIECE_BYTES + b"y" * PIECE_BYTES)
    assert found == [Piece(0, "start"), Piece(5 + PIECE_BYTES, "y" * PIECE_BYTES)]


def test_piece_after_a_gap_begins_with_a_whole_character() -> None:
    assert pieces(OutputKeeper(20), "é".encode() * 7 + b"x") == [Piece(6, "ééééx")]


@pytest.mark.parametrize("limit", [100, 10_000])
def test_pieces_are_together_all_that_was_printed(limit: int) -> None:
    draw = random.Random(limit)
    for _ in range(200):
        parts = [draw.choices(b"a\0\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xff", k=draw.randrange(4)) for _ in range(9)]
        found = pieces(OutputKeeper(limit), *map(bytes, parts))
        assert "".join(piece.text for piece in found) == clean_text(b"".join(map(bytes, parts)))
        assert all(one.first + len(one.text) == after.first for one, after in itertools.pairwise(found))


class Meanwhile(bytes):
    """Bytes that have something done by another thread when they are looked at, which is within a feed."""

    def __new__(cls, data: bytes, act: Callable[[], None]) -> Self:
        made = super().__new__(cls, data)
        made.thread = threading.Thread(target=act)
        return made

    thread: threading.Thread

    def __getitem__(self, place: SupportsIndex | slice) -> Any:
        if not self.thread.ident:
            self.thread.start()
            self.thread.join(0.1)  # it may wait for the end of the feed
        return super().__getitem__(place)


def test_piece_that_is_taken_while_more_is_fed_is_whole() -> None:
    keeper, taken = OutputKeeper(8), list[Piece | None]()
    keeper.feed(b"abcd")
    keeper.feed(b"efgh")
    keeper.take_piece()
    data = Meanwhile(b"ijkl", lambda: taken.append(keeper.take_piece()))
    keeper.feed(data)
    data.thread.join()
    assert taken == [Piece(8, "ijkl")]


def test_output_that_is_no_text_is_stored_within_the_limit() -> None:
    for size in (900, 1000, 5000):
        output = keep(b"\xff" * size, 1000).output()
        assert len(output.head.encode()) <= 500
        assert len(output.tail.encode()) <= 500
        assert (output.head[:1], output.total_bytes) == ("\ufffd", size)


def test_progress_is_the_last_that_was_noted_and_clean() -> None:
    keeper = OutputKeeper(10)
    assert keeper.progress is None
    keeper.note_progress(10, "begun")
    keeper.note_progress(140, "a\0b")
    assert keeper.progress == (100, "a\ufffdb")


# Secrets


SECRET = "s3cret/pa+ss word=?"
SPELLINGS = [
    SECRET,
    quote(SECRET),
    quote(SECRET, safe=""),
    quote_plus(SECRET),
    base64.b64encode(SECRET.encode()).decode(),
    base64.urlsafe_b64encode(SECRET.encode()).decode(),
    base64.b64encode(f"user:{SECRET}".encode()).decode(),
    base64.b64encode(f"me:{SECRET}:more".encode()).decode(),
    base64.b64encode(f"x:y:{SECRET}".encode()).decode(),
]


def hiding(limit: int, *secrets: str) -> OutputKeeper:
    keeper = OutputKeeper(limit)
    keeper.hide(Mask({f"name{number}": secret for number, secret in enumerate(secrets)}))
    return keeper


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("step", [1, 3, 1000])
def test_secret_is_hidden_however_it_is_spelled_and_cut(spelling: str, step: int) -> None:
    keeper, data = hiding(1000, SECRET), f"before {spelling} after".encode()
    found = pieces(keeper, *(data[at : at + step] for at in range(0, len(data), step)))
    for text in (keeper.output().head, "".join(piece.text for piece in found)):
        assert re.fullmatch(r"before .{0,20}\*\*\*.{0,20} after", text)
        assert not any(part in text for part in (SECRET[4:12], spelling[8:-8]))


LONG_SECRET = "".join(f"{number * 7919 % 1000:03}" for number in range(40))


def broken(text: str, width: int, end: str) -> str:
    return end.join(text[at : at + width] for at in range(0, len(text), width)) + end


@pytest.mark.parametrize(("width", "end"), [(76, "\n"), (64, "\n"), (76, "\r\n")])
@pytest.mark.parametrize("before", ["", "a", "ab", "user:" * 20])
@pytest.mark.parametrize("step", [11, 10_000])
def test_encoded_secret_that_is_broken_into_lines_is_hidden(width: int, end: str, before: str, step: int) -> None:
    encoded = base64.b64encode(f"{before}{LONG_SECRET}, and more".encode()).decode()
    data = f"begin\n{broken(encoded, width, end)}end".encode()
    keeper = hiding(1000, LONG_SECRET)
    found = pieces(keeper, *(data[at : at + step] for at in range(0, len(data), step)))
    # Of the characters at both ends some bits are those of their neighbours.
    first, last = (len(before) * 8 + 5) // 6, (len(before) + len(LONG_SECRET)) * 8 // 6
    for text in (keeper.output().head, "".join(piece.text for piece in found)):
        assert "".join(text.split()) == f"begin{encoded[:first]}***{encoded[last:]}end"


@pytest.mark.parametrize("secret", ["  padded secret \t", "first line \n\t second line"])
def test_secret_is_hidden_without_the_blanks_around_it(secret: str) -> None:
    keeper = hiding(1000, secret)
    keeper.feed("|".join(line.strip() for line in secret.splitlines()).encode())
    assert set(keeper.output().head) <= set("*|")


def test_secret_that_overlaps_itself_over_and_over_takes_no_time() -> None:
    """Looked for anew at each place it would be minutes."""
    mask = Mask({"token": "a" * 60_000})
    assert mask.hide(b"a" * 131_072) == b"***"
    assert mask.hide(b"b" + b"a" * 59_999 + b"b") == b"b" + b"a" * 59_999 + b"b"


@pytest.mark.parametrize("size", range(1, len(SECRET) + 1))
@pytest.mark.parametrize("limit", [8, 1000])
def test_beginning_of_a_secret_at_a_cut_is_dropped(size: int, limit: int) -> None:
    keeper = hiding(limit, SECRET)
    for byte in f"it is {SECRET[:size]}".encode():
        keeper.feed(bytes([byte]))
    keeper.cut()
    output = keeper.output()
    assert (output.head + output.tail).endswith("is " if size < len(SECRET) else "***")
    assert keeper.total_bytes == len("it is ") + (len(SECRET) if size == len(SECRET) else 0)


@pytest.mark.parametrize("limit", range(20, 60))
def test_secret_that_a_cut_halves_is_hidden_whole(limit: int) -> None:
    keeper = hiding(limit, SECRET)
    keeper.feed(f"{SECRET}, {SECRET}, {SECRET}, {SECRET}, {SECRET}".encode())
    output = keeper.output()
    assert set(output.head + output.tail) <= set("*, ")


def test_secrets_that_overlap_are_hidden_together() -> None:
    keeper = hiding(1000, "abcabc", "bcabcx")
    assert [piece.text for piece in pieces(keeper, b"abcab", b"cx abcab", b"y")] == ["*** ", "abcaby"]
    assert keeper.output().head == "*** abcaby"


def test_beginning_of_a_secret_that_is_the_end_of_another_one_is_hidden() -> None:
    keeper = hiding(1000, "abcab")
    assert "".join(piece.text for piece in pieces(keeper, b"abcab", b"x")) == "******x"


def test_secret_that_overlaps_itself_is_hidden_whole() -> None:
    keeper = hiding(1000, "abcab")
    keeper.feed(b"abcabcab, abcabcabcab")
    assert keeper.output().head == "***, ***"


def test_what_may_begin_a_secret_waits_and_is_shown_when_it_was_none() -> None:
    keeper = hiding(1000, "abcdefgh")
    assert [piece.text for piece in pieces(keeper, b"1 abc", b"dex", b"ab")] == ["1 ", "abcdex", "ab"]


@pytest.mark.parametrize(("secret", "is_hidden"), [("abc", False), ("abcd", True)])
def test_secret_of_three_characters_is_not_hidden_and_one_of_four_is(secret: str, is_hidden: bool) -> None:
    keeper = hiding(1000, secret)
    keeper.feed(f"it is {secret}".encode())
    assert (secret not in keeper.output().head) == is_hidden


def test_each_line_of_a_secret_is_hidden() -> None:
    keeper = hiding(1000, "first line\nsecond line\n\nx")
    keeper.feed(b"> second line\r\n> x\n")
    assert keeper.output().head == "> ***\r\n> x\n"


def test_note_of_the_progress_has_no_secret() -> None:
    keeper = hiding(1000, SECRET)
    keeper.note_progress(5, f"with {SECRET}")
    assert keeper.progress == (5, "with ***")
