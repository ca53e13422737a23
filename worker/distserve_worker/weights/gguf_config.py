"""A model's configuration out of GGUF metadata."""

import struct
from typing import Final, cast

from distserve_worker.weights.config import Activation, Architecture, ModelConfig, architecture_named
from distserve_worker.weights.errors import ModelInvalid
from distserve_worker.weights.families.rotary import RotaryConfig, checked_rotary
from distserve_worker.weights.gguf_header import GgufHeader, Value
from distserve_worker.weights.limits import MOST, allowed
from distserve_worker.weights.rope_scaling import Rope, RopeBase, scaled_rope

ROPE_FACTORS: Final = "rope_freqs.weight"
_EOS_KEYS: Final = ("eos_token_id", "eot_token_id", "eom_token_id")
_F32: Final = 0


def config_of_gguf(header: GgufHeader) -> ModelConfig:
    """The configuration that `header` states. Raises `ModelInvalid` naming the key that is missing."""
    try:
        return checked_rotary(_Metadata(header).config(), str(header.path))
    except (TypeError, ValueError, OverflowError, IndexError, struct.error) as error:
        raise ModelInvalid(f"{header.path}: a value of the metadata cannot be used ({error})") from error


class _Metadata:
    def __init__(self, header: GgufHeader) -> None:
        self._header = header
        self._architecture = architecture_named(
            header.metadata.get("general.architecture", "(no general.architecture)"),
            str(header.path),
            known=(Architecture.LLAMA,),
        )

    def config(self) -> RotaryConfig:
        hidden, heads = self._count("embedding_length", "hidden"), self._count("attention.head_count", "heads")
        head_dim = self._count("attention.key_length", "head_dim", hidden // heads)
        layers, positions = self._count("block_count", "layers"), self._count("context_length", "max_positions")
        return RotaryConfig(
            architecture=self._architecture,
            layers=layers,
            hidden=hidden,
            heads=heads,
            kv_heads=self._count("attention.head_count_kv", "kv_heads", heads),
            head_dim=head_dim,
            ffn=self._count("feed_forward_length", "ffn"),
            vocab=self._vocab(),
            max_positions=positions,
            norm_eps=self._float("attention.layer_norm_rms_epsilon"),
            activation=Activation.SILU,
            tied_embeddings="output.weight" not in self._header.tensors,
            eos_token_ids=self._eos(),
            rope=self._rope(RopeBase(self._float("rope.freq_base", 10000.0), head_dim, positions)),
            windows=(None,) * layers,
        )

    def _get(self, key: str) -> Value | None:
        return self._header.metadata.get(f"{self._architecture}.{key}")

    def _number(self, key: str, default: float | None) -> float:
        value = self._get(key)
        if value is None:
            value = default
        if not isinstance(value, int | float):
            raise ModelInvalid(f"{self._header.path}: no number under {self._architecture}.{key}")
        return value

    def _count(self, key: str, what: str, default: int | None = None) -> int:
        value = self._number(key, default)
        if not 1 <= value <= MOST[what] or value != int(value):
            name = f"{self._architecture}.{key}"
            raise ModelInvalid(f"{self._header.path}: {name} is {value}, it must be {allowed(what)}")
        return int(value)

    def _float(self, key: str, default: float | None = None) -> float:
        return float(self._number(key, default))

    def _vocab(self) -> int:
        tokens = self._header.metadata.get("tokenizer.ggml.tokens")
        return self._count("vocab_size", "vocab", len(tokens) if isinstance(tokens, list) else None)

    def _eos(self) -> frozenset[int]:
        values = (self._header.metadata.get(f"tokenizer.ggml.{key}") for key in _EOS_KEYS)
        return frozenset(int(value) for value in values if isinstance(value, int))

    def _rope(self, base: RopeBase) -> Rope:
        factors = self._factors()
        if factors is not None:
            return Rope(base.theta, factors)
        kind = self._get("rope.scaling.type")
        if kind is None or kind == "none":
            return Rope(base.theta)
        scaling = {
            "rope_type": kind,
            "factor": self._float("rope.scaling.factor"),
            "original_max_position_embeddings": self._get("rope.scaling.original_context_length"),
        }
        return scaled_rope(scaling, base, str(self._header.path))

    def _factors(self) -> tuple[float, ...] | None:
        """Converters store Llama 3's scaled frequencies as a tensor of divisors."""
        tensor = self._header.tensors.get(ROPE_FACTORS)
        if tensor is None:
            return None
        if tensor.ggml_type != _F32:
            raise ModelInvalid(f"{self._header.path}: {ROPE_FACTORS} is not FP32")
        form = struct.Struct(f"<{tensor.shape[0]}f")
        if tensor.offset + form.size > self._header.path.stat().st_size:
            raise ModelInvalid(f"{self._header.path}: the file ends inside tensor {ROPE_FACTORS}")
        with self._header.path.open("rb") as file:
            file.seek(tensor.offset)
            return cast("tuple[float, ...]", form.unpack(file.read(form.size)))
