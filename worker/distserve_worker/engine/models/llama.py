"""The Llama architecture: RMS norms, rotary grouped-query attention, SwiGLU."""

from dataclasses import dataclass

import torch
from torch.nn.functional import embedding, linear

from distserve_worker.engine.models.interface import Attention, Weights
from distserve_worker.engine.models.layers import GatedMlp, RmsNorm, Rotary, rotate
from distserve_worker.weights.config import ModelConfig


@dataclass(frozen=True, slots=True)
class _Layer:
    input_norm: RmsNorm
    qkv: torch.Tensor  # [(heads + 2 * kv_heads) * head_dim, hidden]
    output: torch.Tensor
    mlp_norm: RmsNorm
    mlp: GatedMlp


class Llama:
    """A `CausalModel`; weights are taken layer by layer."""

    def __init__(self, config: ModelConfig, weights: Weights, device: torch.device) -> None:
        self._config = config
        self._rotary = Rotary(config, device)
        vocabulary = (config.vocab, config.hidden)
        self._embedding = weights.take("model.embed_tokens.weight", vocabulary)
        self._layers = [_take_layer(config, weights, f"model.layers.{index}.") for index in range(config.layers)]
        self._norm = RmsNorm(weights.take("model.norm.weight", (config.hidden,)), config.rms_eps)
        self._head = self._embedding if config.tied_embeddings else weights.take("lm_head.weight", vocabulary)

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor, attention: Attention) -> torch.Tensor:
        """See `CausalModel.forward`."""
        x = embedding(tokens, self._embedding)
        cos, sin = self._rotary.at(positions, x.dtype)
        for index, layer in enumerate(self._layers):
            x = x + linear(self._attend(index, layer, x, cos, sin, attention), layer.output)
            x = x + layer.mlp(layer.mlp_norm(x))
        return self._norm(x)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """See `CausalModel.logits`."""
        return linear(hidden, self._head).float()

    def _attend(
        self, index: int, layer: _Layer, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, attention: Attention
    ) -> torch.Tensor:
        heads, kv_heads = self._config.heads, self._config.kv_heads
        qkv = torch.unflatten(linear(layer.input_norm(x), layer.qkv), -1, (-1, self._config.head_dim))
        turned = rotate(qkv[:, : heads + kv_heads], cos, sin)
        return attention(index, turned[:, :heads], turned[:, heads:], qkv[:, heads + kv_heads :])


def _take_layer(config: ModelConfig, weights: Weights, prefix: str) -> _Layer:
    hidden, ffn = config.hidden, config.ffn
    query, key_value = config.heads * config.head_dim, config.kv_heads * config.head_dim
    attention, mlp = prefix + "self_attn.", prefix + "mlp."
    return _Layer(
        input_norm=RmsNorm(weights.take(prefix + "input_layernorm.weight", (hidden,)), config.rms_eps),
        qkv=torch.cat(
            [
                weights.take(attention + "q_proj.weight", (query, hidden)),
                weights.take(attention + "k_proj.weight", (key_value, hidden)),
                weights.take(attention + "v_proj.weight", (key_value, hidden)),
            ]
        ),
        output=weights.take(attention + "o_proj.weight", (hidden, query)),
        mlp_norm=RmsNorm(weights.take(prefix + "post_attention_layernorm.weight", (hidden,)), config.rms_eps),
        mlp=GatedMlp(
            gate_up=torch.cat(
                [
                    weights.take(mlp + "gate_proj.weight", (ffn, hidden)),
                    weights.take(mlp + "up_proj.weight", (ffn, hidden)),
                ]
            ),
            down=weights.take(mlp + "down_proj.weight", (hidden, ffn)),
        ),
    )
