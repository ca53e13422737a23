"""B11: a stop string split over chunks neither leaks its head nor holds back more than a proper prefix of it."""

from hypothesis import example, given
from hypothesis import strategies as st

from distserve_worker.text.stop_strings import StopStrings

SMALL = st.text(alphabet="ab", max_size=24)
STOPS = st.lists(st.text(alphabet="ab", min_size=1, max_size=5), max_size=4)
CUTS = st.lists(st.integers(min_value=1, max_value=4), max_size=24)


def _chunks(text: str, sizes: list[int]) -> list[str]:
    chunks = []
    for size in sizes:
        chunks.append(text[:size])
        text = text[size:]
    return [*chunks, text]


def _expected(text: str, stops: list[str], start: int = 0) -> str:
    """The text before the stop string that ends first after `start`; where several end there, before the longest."""
    for end in range(start + 1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            return text[: end - max(map(len, ending))]
    return text


def _withheld(text: str, stops: list[str]) -> int:
    """Length of the longest end of `text` that is a proper prefix of a stop string."""
    prefixes = {stop[:size] for stop in stops for size in range(len(stop))}
    return max((len(prefix) for prefix in prefixes if text.endswith(prefix)), default=0)


@given(text=SMALL, stops=STOPS, sizes=CUTS)
@example(text="aabaab", stops=["abaa", "b"], sizes=[2, 1, 1])
@example(text="abab", stops=["ababa"], sizes=[4])
def test_the_text_ends_before_the_first_stop_string_however_it_is_chunked(
    text: str, stops: list[str], sizes: list[int]
) -> None:
    """B11."""
    matcher = StopStrings(stops)
    emitted = "".join(matcher.feed(chunk) for chunk in _chunks(text, sizes)) + matcher.finish()
    assert emitted == _expected(text, stops)
    assert matcher.stopped == any(stop in text for stop in stops)


@given(text=SMALL, stops=STOPS, sizes=CUTS)
def test_no_more_is_held_back_than_a_proper_prefix_of_a_stop_string(
    text: str, stops: list[str], sizes: list[int]
) -> None:
    """B11."""
    matcher, emitted, seen = StopStrings(stops), "", ""
    for chunk in _chunks(text, sizes):
        emitted += matcher.feed(chunk)
        seen += chunk
        if matcher.stopped:
            break
        assert len(seen) - len(emitted) == _withheld(seen, stops)


def test_without_stop_strings_text_passes_through() -> None:
    assert StopStrings([]).feed("anything") == "anything"


def test_after_a_stop_nothing_more_comes_out() -> None:
    matcher = StopStrings(["."])
    assert [matcher.feed("One. Two"), matcher.feed(" three"), matcher.finish()] == ["One", "", ""]


@given(text=SMALL, stops=STOPS, sizes=CUTS, start=st.integers(min_value=0, max_value=24))
def test_stop_strings_that_are_complete_before_they_count_are_text(
    text: str, stops: list[str], sizes: list[int], start: int
) -> None:
    """B11: those that overlap with the point from which they count are found."""
    matcher, emitted, fed = StopStrings(stops), "", 0
    chunks = _chunks(text, sizes)
    for chunk in chunks:
        emitted += matcher.feed(chunk, stopping=fed >= start)
        fed += len(chunk)
    starts = [len("".join(chunks[:place])) for place in range(len(chunks))]
    first = next((place for place in starts if place >= start), len(text))
    assert emitted + matcher.finish() == _expected(text, stops, first)


def test_it_is_known_whether_text_is_held_back() -> None:
    matcher = StopStrings(["ab"])
    matcher.feed("xa")
    assert matcher.holding
    matcher.feed("x")
    assert not matcher.holding
