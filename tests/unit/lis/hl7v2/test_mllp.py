"""However the bytes come, the messages are the same; what is damaged is seen, and what follows is read."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab_agent.lis.hl7v2.transport.mllp import Frame, FrameDecoder, InvalidFrame, ReceivedFrame, wrap_frame

VT = b"\x0b"
PIECE = st.sampled_from([b"\x0b", b"\x1c", b"\r", b"\n", b"MSH|", b"a" * 7, "ж".encode(), b"x"])


def read(chunks: list[bytes], limit: int = 20) -> list[ReceivedFrame]:
    framer = FrameDecoder(limit)
    found = [one for chunk in chunks for one in framer.feed(chunk)]
    return [*found, *framer.finish()]


@settings(deadline=None)
@given(st.lists(PIECE, max_size=40), st.lists(st.integers(0, 200), max_size=12))
def test_framer_any_chunking_gives_same_frames(pieces: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(pieces)
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    chunks = [stream[start:end] for start, end in pairwise(places)]
    assert read(chunks) == read([stream]) == read([bytes([byte]) for byte in stream])


@settings(deadline=None)
@given(st.lists(st.binary(max_size=20).map(lambda data: bytes(byte for byte in data if byte not in b"\x0b\x1c")), max_size=6))
def test_framer_whole_messages_returned(messages: list[bytes]) -> None:
    assert read([b"".join(map(wrap_frame, messages))]) == [Frame(message) for message in messages]


@pytest.mark.parametrize(
    ("stream", "found"),
    [
        (b"\x0babc", [InvalidFrame(b"abc", "the connection closed in the middle of the message", answerable=False)]),
        (b"\x0babc\x0bdef\x1c\r", [InvalidFrame(b"abc", "a new message began before this one had ended"), Frame(b"def")]),
        (b"GET /\x0babc\x1c\r", [InvalidFrame(b"GET /", "bytes outside of a frame", answerable=False), Frame(b"abc")]),
        (b"\x0babc\x1c\x0bdef\x1c", [Frame(b"abc"), Frame(b"def")]),
        (
            VT + b"a" * 21 + b"\x1c\r\x0bdef\x1c\r",
            [InvalidFrame(b"a" * 21, "the message is longer than 20 bytes"), Frame(b"def")],
        ),
    ],
)
def test_framer_invalid_frame_reported_next_frame_read(stream: bytes, found: list[ReceivedFrame]) -> None:
    assert read([stream]) == found


def test_framer_endless_message_keeps_bounded_buffer() -> None:
    framer = FrameDecoder(10_000)
    for begin in (b"", VT):  # outside of a frame, and within
        list(framer.feed(begin))
        for _ in range(1000):
            assert not list(framer.feed(b"x" * 1000))
            assert len(framer._buffer) <= 11_000
    [one] = framer.feed(b"\x1c")
    assert isinstance(one, InvalidFrame)
    assert len(one.data) == 4096
