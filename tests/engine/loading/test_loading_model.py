"""Broken weights are refused by the name of the tensor, whatever the format."""

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from distserve_testing.families import write_family
from distserve_testing.models import LLAMA_METADATA, write_gguf, write_tiny_llama
from distserve_testing.ranks import Instance
from safetensors.torch import load_file, save_file

from distserve_worker.engine.loading.loading_model import LoadedModel, load_model
from distserve_worker.engine.loading.safetensors_source import SafetensorsSource
from distserve_worker.engine.parallel import WHOLE, Grid, shard_of
from distserve_worker.weights.errors import ModelInvalid, ModelNotFound
from distserve_worker.weights.reading import read_config

TOKENS = [5, 77, 3, 200, 9]
NORM = "model.layers.1.input_layernorm.weight"


def _load(path: Path) -> LoadedModel:
    return load_model(path, read_config(path), "FP32", torch.device("cpu"))


class TestSafetensors:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        write_tiny_llama(tmp_path)
        return tmp_path

    def _rewrite(self, folder: Path, changes: Mapping[str, torch.Tensor | None]) -> None:
        weights = {**load_file(folder / "model.safetensors"), **changes}
        kept = {name: weight for name, weight in weights.items() if weight is not None}
        save_file(kept, folder / "model.safetensors")

    def test_a_missing_tensor(self, folder: Path) -> None:
        self._rewrite(folder, {NORM: None})
        with pytest.raises(ModelInvalid, match=f"tensor {NORM} is missing"):
            _load(folder)

    def test_a_tensor_of_another_shape(self, folder: Path) -> None:
        self._rewrite(folder, {NORM: torch.ones(7)})
        with pytest.raises(ModelInvalid, match=rf"tensor {NORM} has the shape \(7,\), the model's is \(48,\)"):
            _load(folder)

    def test_a_tensor_of_a_dtype_that_is_no_float(self, folder: Path) -> None:
        self._rewrite(folder, {NORM: torch.ones(48, dtype=torch.int8)})
        with pytest.raises(ModelInvalid, match=rf"tensor {NORM}: dtype I8 is not known \(known: BF16, F16, F32\)"):
            _load(folder)

    def test_a_tensor_that_the_architecture_does_not_have(self, folder: Path) -> None:
        """Leaving it out would give wrong text without a word."""
        self._rewrite(folder, {"model.layers.0.self_attn.q_proj.bias": torch.ones(48)})
        with pytest.raises(ModelInvalid, match=r"1 tensors do not belong to the architecture.*q_proj\.bias"):
            _load(folder)

    def test_a_head_next_to_tied_embeddings_is_not_needed(self, tmp_path: Path) -> None:
        write_tiny_llama(tmp_path, tie_word_embeddings=True)
        self._rewrite(tmp_path, {"lm_head.weight": torch.zeros(211, 48)})
        assert _load(tmp_path).model.logits(torch.ones(1, 48)).any()

    def test_a_truncated_file(self, folder: Path) -> None:
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-1])
        with pytest.raises(ModelInvalid, match=r"model\.safetensors: truncated: tensor model\..*weight ends at byte"):
            _load(folder)

    @pytest.mark.parametrize("content", [b"", b"\x01", (2**40).to_bytes(8, "little"), b"\x02" + bytes(7) + b"[]"])
    def test_a_damaged_header(self, folder: Path, content: bytes) -> None:
        (folder / "model.safetensors").write_bytes(content)
        with pytest.raises(ModelInvalid, match="header is truncated or damaged"):
            _load(folder)

    @pytest.mark.parametrize("entry", [{"shape": [2.0]}, {"data_offsets": [0.5, 8.5]}], ids=str)
    def test_numbers_that_are_not_whole(self, folder: Path, entry: dict[str, Any]) -> None:
        header = json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | entry}).encode()
        (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
        with pytest.raises(ModelInvalid, match="must be whole numbers"):
            _load(folder)

    def test_no_weights_at_all(self, folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        with pytest.raises(ModelNotFound, match=r"model\.safetensors: no such file"):
            _load(folder)

    @pytest.mark.parametrize("name", ["model.safetensors", "model.safetensors.index.json"])
    def test_a_pipe_where_weights_should_be(self, folder: Path, name: str) -> None:
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)
        with pytest.raises(ModelNotFound, match=f"/{name}: no regular file but a pipe"):
            _load(folder)

    def test_weights_of_another_format(self, folder: Path) -> None:
        (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
        words = r"pytorch_model\.bin: only safetensors and GGUF files are read: convert it to model\.safetensors"
        with pytest.raises(ModelInvalid, match=words):
            _load(folder)

    def test_weights_of_another_format_besides(self, folder: Path) -> None:
        (folder / "pytorch_model.bin").write_bytes(b"")
        _load(folder)

    @pytest.mark.parametrize("shard", ["/etc/hostname", "../model.safetensors", "deeper/../../model.safetensors"])
    def test_a_shard_outside_the_folder(self, folder: Path, shard: str) -> None:
        index = {"weight_map": {"lm_head.weight": "model.safetensors", NORM: shard}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        with pytest.raises(ModelInvalid, match=rf"index\.json: the shard '{shard}' is not in the folder"):
            _load(folder)

    def test_a_missing_shard(self, tmp_path: Path) -> None:
        write_tiny_llama(tmp_path, max_shard_size="100KB")
        shard = min(tmp_path.glob("model-*.safetensors"))
        shard.unlink()
        with pytest.raises(ModelNotFound, match=f"{shard.name}: no such file"):
            _load(tmp_path)

    @pytest.mark.parametrize("content", ["{", "[]", "{}", '{"weight_map": {"lm_head.weight": 5}}'])
    def test_a_damaged_index(self, folder: Path, content: str) -> None:
        (folder / "model.safetensors.index.json").write_text(content)
        with pytest.raises(ModelInvalid, match=r"index\.json: no weight_map"):
            _load(folder)

    def test_a_part_that_the_file_is_too_short_for_while_it_is_read(self, folder: Path) -> None:
        source = SafetensorsSource(folder)
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-100])
        last = max(source.stored.values(), key=lambda stored: stored.offset)
        with pytest.raises(ModelInvalid, match="truncated while it was read"):
            source.read(last.name, None, torch.empty(last.shape))

    def test_bytes_that_are_not_of_the_shape(self, folder: Path) -> None:
        path = folder / "model.safetensors"
        content = path.read_bytes()
        damaged = content.replace(b'"dtype":"F32","shape":[48]', b'"dtype":"F32","shape":[96]', 1)
        assert damaged != content
        path.write_bytes(damaged)
        with pytest.raises(ModelInvalid, match=r"192 bytes of F32 are not of the shape \(96,\)|has the shape \(96,\)"):
            _load(folder)

    def test_nothing_is_read_of_a_model_that_is_not_sound(self, folder: Path) -> None:
        """The tensor that is missing would be the last one to be read."""
        self._rewrite(folder, {"lm_head.weight": None})
        told: list[float] = []
        with pytest.raises(ModelInvalid, match=r"lm_head\.weight is missing"):
            load_model(folder, read_config(folder), "FP32", torch.device("cpu"), progress=told.append)
        assert not told

    @pytest.mark.parametrize("dtype", ["FP32", "INT8"])
    @pytest.mark.parametrize("grid", [WHOLE, Grid(2), Grid(1, 3)], ids=str)
    def test_progress_rises_to_one_for_every_rank(self, folder: Path, grid: Grid, dtype: str) -> None:
        config = read_config(folder)
        for rank in range(grid.ranks):
            told: list[float] = []
            shard = shard_of(config, grid, rank)
            load_model(folder, config, dtype, torch.device("cpu"), shard=shard, progress=told.append)
            assert told == sorted(told)
            assert told[0] < 0.5
            assert told[-1] == pytest.approx(1.0)

    def test_progress_is_logged_to_the_end(self, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.INFO):
            _load(folder)
        lines = [record.getMessage() for record in caplog.records if "loading" in record.getMessage()]
        assert len(lines) >= 3
        assert lines[-1].endswith("of 0 MB")


def _tiny_gguf(**changes: np.ndarray[Any, Any] | None) -> dict[str, np.ndarray[Any, Any]]:
    """All tensors that LLAMA_METADATA asks for; `changes` by GGUF name with dots written as two underscores."""
    shapes = {"token_embd.weight": (10, 32), "output_norm.weight": (32,), "output.weight": (10, 32)}
    for layer in range(2):
        matrices = {"attn_q": (32, 32), "attn_k": (16, 32), "attn_v": (16, 32), "attn_output": (32, 32)}
        mlp = {"ffn_gate": (64, 32), "ffn_up": (64, 32), "ffn_down": (32, 64)}
        norms = {"attn_norm": (32,), "ffn_norm": (32,)}
        shapes |= {f"blk.{layer}.{name}.weight": shape for name, shape in (matrices | mlp | norms).items()}
    tensors = {name: np.ones(shape, dtype=np.float32) for name, shape in shapes.items()}
    named = {name.replace("__", "."): tensor for name, tensor in changes.items()}
    return {name: tensor for name, tensor in {**tensors, **named}.items() if tensor is not None}


class TestGguf:
    def test_a_whole_file_loads(self, tmp_path: Path) -> None:
        _load(write_gguf(tmp_path / "model.gguf", tensors=_tiny_gguf()))

    def test_a_missing_tensor(self, tmp_path: Path) -> None:
        path = write_gguf(tmp_path / "model.gguf", tensors=_tiny_gguf(blk__1__ffn_up__weight=None))
        with pytest.raises(ModelInvalid, match=r"tensor model\.layers\.1\.mlp\.up_proj\.weight is missing"):
            _load(path)

    def test_a_tensor_that_the_architecture_does_not_have(self, tmp_path: Path) -> None:
        extra = _tiny_gguf(blk__0__attn_q__bias=np.ones(32, dtype=np.float32))
        with pytest.raises(ModelInvalid, match=r"do not belong to the architecture.*blk\.0\.attn_q\.bias"):
            _load(write_gguf(tmp_path / "model.gguf", tensors=extra))

    def test_a_truncated_file(self, tmp_path: Path) -> None:
        path = write_gguf(tmp_path / "model.gguf", tensors=_tiny_gguf())
        path.write_bytes(path.read_bytes()[:-64])
        with pytest.raises(ModelInvalid, match=r"truncated: tensor model\.layers\.1\..* ends at byte"):
            _load(path)

    def test_a_tensor_type_of_the_future(self, tmp_path: Path) -> None:
        path = write_gguf(tmp_path / "model.gguf", tensors=_tiny_gguf())
        self._retyped(path, "output_norm.weight", 1, 250)
        with pytest.raises(ModelInvalid, match=r"tensor output_norm\.weight: type 250 is not known"):
            _load(path)

    def _retyped(self, path: Path, name: str, dimensions: int, kind: int) -> Path:
        """The file with another type of a tensor in its header."""
        content = bytearray(path.read_bytes())
        at = content.index(name.encode()) + len(name) + 4 + 8 * dimensions
        content[at : at + 4] = kind.to_bytes(4, "little")
        path.write_bytes(content)
        return path

    @pytest.mark.parametrize(
        ("name", "dimensions", "stored", "shape"),
        [
            ("blk.1.ffn_up.weight", 2, r"model\.layers\.1\.mlp\.up_proj", r"\(64, 32\)"),
            ("output_norm.weight", 1, r"model\.norm", r"\(32,\)"),
        ],
    )
    def test_a_type_that_does_not_fit_the_rows(
        self, tmp_path: Path, name: str, dimensions: int, stored: str, shape: str
    ) -> None:
        path = write_gguf(tmp_path / "model.gguf", tensors=_tiny_gguf())
        self._retyped(path, name, dimensions, gguf.GGMLQuantizationType.Q4_K)
        words = rf"model\.gguf: tensor {stored}\.weight of the shape {shape}: Q4_K has rows of multiples of 256"
        with pytest.raises(ModelInvalid, match=words):
            _load(path)

    def test_a_norm_may_be_quantised(self, tmp_path: Path) -> None:
        path = write_gguf(tmp_path / "model.gguf", tensors=_tiny_gguf())
        _load(self._retyped(path, "output_norm.weight", 1, gguf.GGMLQuantizationType.Q8_0))

    def test_a_quantisation_that_cannot_be_undone(self, tmp_path: Path) -> None:
        path = tmp_path / "model.gguf"
        writer = gguf.GGUFWriter(path, "llama")
        for key, value in LLAMA_METADATA.items():
            (writer.add_float32 if isinstance(value, float) else writer.add_uint32)(key, value)
        raw = np.zeros((10, 40), dtype=np.uint8)
        writer.add_tensor("token_embd.weight", raw, raw_dtype=gguf.GGMLQuantizationType.Q8_1)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        with pytest.raises(ModelInvalid, match=r"model\.embed_tokens\.weight: cannot undo Q8_1"):
            _load(path)


class TestNames:
    """Files of the same model that other tools wrote."""

    def _renamed(self, folder: Path, renames: Mapping[str, str], extra: Mapping[str, torch.Tensor]) -> None:
        weights = load_file(folder / "model.safetensors")
        for old, new in renames.items():
            weights = {name.replace(old, new): weight for name, weight in weights.items()}
        save_file({**weights, **extra}, folder / "model.safetensors")

    def test_gpt2_as_its_authors_published_it(self, tmp_path: Path) -> None:
        """Without the prefix, and with the causal mask of each layer."""
        write_family(tmp_path, "gpt2")
        before = Instance(tmp_path).logits(TOKENS)
        masks = {f"h.{layer}.attn.bias": torch.ones(1, 1, 256, 256) for layer in range(3)}
        self._renamed(tmp_path, {"transformer.": ""}, masks)
        assert torch.equal(Instance(tmp_path).logits(TOKENS), before)

    def test_opt_without_its_head(self, tmp_path: Path) -> None:
        write_family(tmp_path, "opt")
        before = Instance(tmp_path).logits(TOKENS)
        self._renamed(tmp_path, {"model.decoder.": "decoder."}, {})
        assert torch.equal(Instance(tmp_path).logits(TOKENS), before)

    def test_llama_with_its_rotary_frequencies(self, tmp_path: Path) -> None:
        write_family(tmp_path, "llama")
        frequencies = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}
        self._renamed(tmp_path, {}, frequencies)
        Instance(tmp_path)

    def test_a_bias_too_many_is_still_refused(self, tmp_path: Path) -> None:
        write_family(tmp_path, "mistral")
        self._renamed(tmp_path, {}, {"model.layers.0.mlp.up_proj.bias": torch.ones(80)})
        with pytest.raises(ModelInvalid, match=r"1 tensors do not belong to the architecture.*up_proj\.bias"):
            Instance(tmp_path)


def test_an_index_may_name_each_shard_many_times(tmp_path: Path) -> None:
    write_tiny_llama(tmp_path, max_shard_size="100KB")
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) < len(index["weight_map"])
    _load(tmp_path)
