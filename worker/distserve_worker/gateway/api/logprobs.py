"""Log probabilities in the two forms of the OpenAI API. All are natural, and those of the model before any setting."""

from collections.abc import Callable, Sequence
from typing import Any

from distserve_worker.gateway.answer import ChosenToken
from distserve_worker.text.tokenizer import Tokenizer

Spelling = Callable[[int], bytes]


def spelling(tokenizer: Tokenizer) -> Spelling:
    """The bytes of a token; control tokens, which are no text, are written as the vocabulary names them."""

    def spelled(token: int) -> bytes:
        return tokenizer.pieces.of(token) or (tokenizer.backend.id_to_token(token) or "").encode()

    return spelled


def chat_logprobs(chosen: Sequence[ChosenToken], spell: Spelling) -> dict[str, Any]:
    """As in a choice of chat: one entry for each token that usage counts."""
    content = [
        _entry(one.token, one.logprobs.logprob, spell)
        | {"top_logprobs": [_entry(top.token, top.logprob, spell) for top in one.logprobs.top]}
        for one in chosen
    ]
    return {"content": content, "refusal": None}


def completion_logprobs(chosen: Sequence[ChosenToken], spell: Spelling) -> dict[str, Any]:
    """As in a choice of completions: one item of each list for each token that usage counts."""
    return {
        "tokens": [_text(spell(one.token)) for one in chosen],
        "token_logprobs": [one.logprobs.logprob for one in chosen],
        "top_logprobs": [_alternatives(one, spell) for one in chosen],
        "text_offset": [one.offset for one in chosen],
    }


def _entry(token: int, logprob: float, spell: Spelling) -> dict[str, Any]:
    spelled = spell(token)
    return {"token": _text(spelled), "logprob": logprob, "bytes": list(spelled)}


def _alternatives(one: ChosenToken, spell: Spelling) -> dict[str, float]:
    """The most likely tokens and, as OpenAI does it, the chosen one; of those with one spelling the most likely."""
    likely: dict[str, float] = {}
    for top in one.logprobs.top:
        likely.setdefault(_text(spell(top.token)), top.logprob)
    likely.setdefault(_text(spell(one.token)), one.logprobs.logprob)
    return likely


def _text(spelled: bytes) -> str:
    """Parts of a character are told apart by their bytes, as OpenAI writes them."""
    try:
        return spelled.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in spelled)
