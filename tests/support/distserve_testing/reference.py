"""SmolLM2 in transformers, and the rule by which greedy text must equal its text."""

import hashlib
import shutil
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

import torch
import transformers
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from distserve_devcluster.locations import cache_folder
from distserve_devcluster.locking import exclusive

NEAR_TIE: Final = 1e-3  # logits: closer ones may change places with the order of additions
_CONVERSION_SECONDS: Final = 240


def load_reference(path: Path) -> transformers.LlamaForCausalLM:
    """The Llama in the GGUF file `path`, read and dequantised by transformers' own code, in FP32.

    That takes a quarter of a minute, so what it made is kept in the cache, for this file, these versions and this code.
    """
    transformers.utils.logging.disable_progress_bar()
    made_of = hashlib.sha256(Path(__file__).read_bytes() + f"{transformers.__version__} {version('gguf')}".encode())
    with path.open("rb") as file:
        made_of.update(hashlib.file_digest(file, "sha256").digest())
    cache = cache_folder() / "reference"
    cached = cache / made_of.hexdigest()[:20]
    with exclusive(cache / "lock", _CONVERSION_SECONDS):
        if not cached.exists():
            for old in cache.glob("*/"):  # of other versions, or of a conversion that was killed
                shutil.rmtree(old)
            with tempfile.TemporaryDirectory(prefix=".converting-", dir=cache) as room:
                _converted(path).save_pretrained(Path(room) / "whole")
                (Path(room) / "whole").rename(cached)
        return transformers.LlamaForCausalLM.from_pretrained(cached, dtype=torch.float32).eval()


def _converted(path: Path) -> transformers.LlamaForCausalLM:
    config = transformers.AutoConfig.from_pretrained(path.parent, gguf_file=path.name)
    model = transformers.LlamaForCausalLM(config).eval()
    tensors = load_gguf_checkpoint(path, return_tensors=True, model_to_load=model)["tensors"]
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    assert not unexpected
    assert set(missing) <= {"lm_head.weight"}, "only the tied head may be missing"
    return model


def require_greedy(reference: transformers.LlamaForCausalLM, prompt: Sequence[int], output: Sequence[int]) -> None:
    """Fail unless every token of `output` is the reference's most likely one after all tokens before it.

    That is the same as equality with the reference's own greedy text, and takes one pass instead of one a token. Where
    the reference's best logits nearly tie, any of them will do.
    """
    tokens = torch.tensor([[*prompt, *output]])
    with torch.inference_mode():
        logits = reference(tokens, logits_to_keep=len(output) + 1, use_cache=False).logits[0, :-1]
    best = logits.max(dim=-1).values
    chosen = logits.gather(1, torch.tensor(output).unsqueeze(1)).squeeze(1)
    wrong = (best - chosen >= NEAR_TIE).nonzero().flatten().tolist()
    assert not wrong, (
        f"after {len(prompt)} prompt tokens, at output positions {wrong} the reference prefers "
        f"{logits.argmax(-1)[wrong].tolist()} to {[output[position] for position in wrong]}"
    )
