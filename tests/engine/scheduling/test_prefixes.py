"""Equal beginnings have equal keys, and nothing else has."""

from hypothesis import given
from hypothesis import strategies as st

from distserve_worker.engine.scheduling.prefixes import PrefixKeys

TEXTS = st.lists(st.integers(0, 2), min_size=1, max_size=14)
SALTS = st.sampled_from(["", "one key", "another"])


@given(one=TEXTS, other=TEXTS, one_salt=SALTS, other_salt=SALTS)
def test_as_many_keys_are_equal_as_full_blocks_are(
    one: list[int], other: list[int], one_salt: str, other_salt: str
) -> None:
    equal = 0
    for a, b in zip(one, other, strict=False):
        if a != b or one_salt != other_salt:
            break
        equal += 1
    keys = [PrefixKeys(tokens, 4, salt).of(len(tokens)) for tokens, salt in [(one, one_salt), (other, other_salt)]]
    assert sum(1 for a, b in zip(*keys, strict=False) if a == b) == equal // 4
    assert not set(keys[0][equal // 4 :]).intersection(keys[1][equal // 4 :])


@given(tokens=TEXTS, more=TEXTS)
def test_keys_grow_with_the_tokens(tokens: list[int], more: list[int]) -> None:
    growing = list(tokens)
    keys = PrefixKeys(growing, 4, "")
    keys.of(len(growing))
    growing += more
    assert keys.of(len(growing)) == PrefixKeys(tokens + more, 4, "").of(len(tokens + more))


def test_the_last_token_is_never_found() -> None:
    counts = [len(PrefixKeys([7] * length, 4, "").of_all_but_the_last()) for length in (1, 4, 5, 8, 9)]
    assert counts == [0, 0, 1, 1, 2]


def test_token_ids_may_be_large() -> None:
    assert PrefixKeys([0, 2**31], 2, "").of(2) != PrefixKeys([0, 2**31 + 1], 2, "").of(2)
