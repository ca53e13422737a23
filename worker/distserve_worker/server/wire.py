"""Between wire messages and the engine's own types; no decisions."""

from distserve_proto import worker_pb2
from distserve_worker.engine.interface import FinishReason, Load, Sampling, TokenLogprobs, Work

_FINISH_REASONS = {
    FinishReason.STOP: worker_pb2.FINISH_REASON_STOP,
    FinishReason.LENGTH: worker_pb2.FINISH_REASON_LENGTH,
}


def work_of(submit: worker_pb2.Submit, key: str) -> Work:
    """The engine's view of a submitted leg, under the worker's own key."""
    return Work(
        request_id=key,
        prompt=tuple(submit.prompt),
        output=tuple(submit.output),
        sampling=_sampling_of(submit),
        stop_token_ids=frozenset(submit.stop_token_ids),
        max_tokens=submit.max_tokens if submit.HasField("max_tokens") else None,
        prefix_salt=submit.prefix_salt,
    )


def _sampling_of(submit: worker_pb2.Submit) -> Sampling:
    if not submit.HasField("sampling"):
        return Sampling()
    sampling = submit.sampling
    return Sampling(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        seed=sampling.seed,
        min_p=sampling.min_p,
        repetition_penalty=sampling.repetition_penalty or 1.0,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        logit_bias=tuple(sorted(sampling.logit_bias.items())),
        min_tokens=sampling.min_tokens,
        logprobs=sampling.logprobs if sampling.HasField("logprobs") else None,
    )


def logprobs_message(logprobs: TokenLogprobs) -> worker_pb2.TokenLogprobs:
    """Log probabilities of one token, for the wire."""
    top = [worker_pb2.TopLogprob(token=token, logprob=logprob) for token, logprob in logprobs.top]
    return worker_pb2.TokenLogprobs(logprob=logprobs.logprob, top=top)


def finished(reason: FinishReason, stages: worker_pb2.Stages) -> worker_pb2.Finished:
    """A leg that ended well."""
    return worker_pb2.Finished(reason=_FINISH_REASONS[reason], stages=stages)


def load_message(load: Load, draining: bool, pending_requests: int, pending_tokens: int) -> worker_pb2.Load:
    """The engine's load, plus what was submitted and the engine has not seen yet."""
    return worker_pb2.Load(
        queued_tokens=load.queued_tokens + pending_tokens,
        waiting=load.waiting + pending_requests,
        running=load.running,
        free_blocks=load.free_blocks,
        total_blocks=load.total_blocks,
        parked=load.parked,
        draining=draining,
    )
