"""What sets chat and completions apart: how the prompt is made and how text is wrapped. Everything else is shared."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from distserve_worker.gateway.answer import ChosenToken
from distserve_worker.gateway.api.bodies import ChatBody, CompletionBody, GenerationBody
from distserve_worker.gateway.api.logprobs import Spelling, chat_logprobs, completion_logprobs
from distserve_worker.gateway.api.reading import read_chat, read_completion
from distserve_worker.gateway.errors import invalid, shown
from distserve_worker.text.chat_template import TemplateRefusedError
from distserve_worker.text.tokenizer import ModelText

Body = TypeVar("Body", bound=GenerationBody)
Content = dict[str, Any]  # of a choice: everything but its index, log probabilities and reason to end


@dataclass(frozen=True, slots=True)
class Dialect(Generic[Body]):
    """One generation endpoint of the OpenAI API."""

    endpoint: str  # label of the metrics
    id_prefix: str
    whole_object: str
    chunk_object: str
    prompt_param: str
    read: Callable[[bytes], Body]  # raises ApiError
    tokens: Callable[[Body, ModelText, int], tuple[int, ...]]  # at most so many; raises ApiError, TextTooLongError
    opening: Content | None  # of a chunk before any text
    piece: Callable[[str], Content]  # of a chunk that adds text
    ending: Content  # of the chunk that says why the text ends
    whole: Callable[[str], Content]  # of a response that is not streamed
    logprobs: Callable[[Sequence[ChosenToken], Spelling], dict[str, Any]]


def _chat_tokens(body: ChatBody, text: ModelText, at_most: int) -> tuple[int, ...]:
    if text.chat_template is None:
        raise invalid("This model has no chat template; use /v1/completions", "messages", "no_chat_template")
    try:
        prompt = text.chat_template.render([message.for_template() for message in body.messages])
    except TemplateRefusedError as error:
        message = f"'messages': the model's chat template refuses them: {shown(str(error))}"
        raise invalid(message, "messages", "invalid_value") from error
    # the template writes BOS itself where the model wants it
    return text.tokenizer.encode(prompt, add_special_tokens=False, at_most=at_most)


def _chat_message(text: str) -> Content:
    return {"message": {"role": "assistant", "content": text, "refusal": None}}


def _completion_tokens(body: CompletionBody, text: ModelText, at_most: int) -> tuple[int, ...]:
    if isinstance(body.prompt, str):
        return text.tokenizer.encode(body.prompt, add_special_tokens=True, at_most=at_most)
    if len(body.prompt) <= at_most:  # a longer one is refused for its length, whatever is in it
        _check_token_ids(body.prompt, text.tokenizer.vocabulary_size)
    return tuple(body.prompt)


def _check_token_ids(prompt: Sequence[int], size: int) -> None:
    for index, token in enumerate(prompt):
        if token >= size:
            message = f"'prompt[{index}]': the vocabulary has {size} tokens, got {token}"
            raise invalid(message, f"prompt[{index}]", "invalid_value")


def _completion(text: str) -> Content:
    return {"text": text}


CHAT: Final = Dialect(
    endpoint="chat_completions",
    id_prefix="chatcmpl",
    whole_object="chat.completion",
    chunk_object="chat.completion.chunk",
    prompt_param="messages",
    read=read_chat,
    tokens=_chat_tokens,
    opening={"delta": {"role": "assistant", "content": ""}},
    piece=lambda text: {"delta": {"content": text}},
    ending={"delta": {}},
    whole=_chat_message,
    logprobs=chat_logprobs,
)

COMPLETIONS: Final = Dialect(
    endpoint="completions",
    id_prefix="cmpl",
    whole_object="text_completion",
    chunk_object="text_completion",
    prompt_param="prompt",
    read=read_completion,
    tokens=_completion_tokens,
    opening=None,
    piece=_completion,
    ending=_completion(""),
    whole=_completion,
    logprobs=completion_logprobs,
)
