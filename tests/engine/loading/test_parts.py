"""A part of a tensor is what the whole tensor has there, in every format, dtype and place."""

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from distserve_testing.models import LLAMA_METADATA, write_gguf
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from distserve_worker.engine.loading import gguf_source, safetensors_source
from distserve_worker.engine.loading.gguf_source import GgufSource
from distserve_worker.engine.loading.safetensors_source import SafetensorsSource
from distserve_worker.engine.models.interface import Part
from distserve_worker.weights.gguf_config import config_of_gguf
from distserve_worker.weights.gguf_header import read_gguf_header

ROWS, COLUMNS = 23, 17
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture(scope="module")
def matrices(tmp_path_factory: pytest.TempPathFactory) -> tuple[SafetensorsSource, dict[str, torch.Tensor]]:
    folder = tmp_path_factory.mktemp("matrices")
    tensors = {str(dtype): torch.randn(ROWS, COLUMNS).to(dtype) for dtype in DTYPES}
    tensors["vector"] = torch.randn(ROWS)
    save_file(tensors, folder / "model.safetensors")
    return SafetensorsSource(folder), tensors


@given(
    dim=st.integers(0, 1),
    ends=st.lists(st.integers(0, COLUMNS), min_size=2, max_size=2, unique=True).map(sorted),
    stored=st.sampled_from(DTYPES),
    wanted=st.sampled_from(DTYPES),
    piece=st.sampled_from([1, 100, 1 << 20]),
    transposed=st.booleans(),
)
def test_any_part_into_any_room(
    matrices: tuple[SafetensorsSource, dict[str, torch.Tensor]],
    dim: int,
    ends: list[int],
    stored: torch.dtype,
    wanted: torch.dtype,
    piece: int,
    transposed: bool,
) -> None:
    source, tensors = matrices
    expected = tensors[str(stored)].narrow(dim, ends[0], ends[1] - ends[0])
    room = torch.full(expected.t().shape if transposed else expected.shape, torch.nan, dtype=wanted)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(safetensors_source, "_PIECE", piece)
        source.read(str(stored), Part(dim, ends[0], ends[1]), room.t() if transposed else room)
    assert torch.equal(room.t() if transposed else room, expected.to(wanted))


def test_a_part_of_a_vector(matrices: tuple[SafetensorsSource, dict[str, torch.Tensor]]) -> None:
    source, tensors = matrices
    room = torch.empty(4, dtype=torch.bfloat16)
    source.read("vector", Part(0, 3, 7), room)
    assert torch.equal(room, tensors["vector"][3:7].bfloat16())


@pytest.fixture(scope="module")
def quantised(tmp_path_factory: pytest.TempPathFactory) -> GgufSource:
    """Queries of 4 heads of 8, and a matrix of the MLP, in blocks of 32 items."""
    path = tmp_path_factory.mktemp("gguf") / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in LLAMA_METADATA.items():
        (writer.add_float32 if isinstance(value, float) else writer.add_uint32)(key, value)
    kind = gguf.GGMLQuantizationType.Q8_0
    for name, shape in (("attn_q", (32, 64)), ("ffn_down", (32, 64))):
        values = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
        writer.add_tensor(f"blk.0.{name}.weight", gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    header = read_gguf_header(path)
    return GgufSource(header, config_of_gguf(header))


@pytest.mark.parametrize("piece", [1, 64 * 8, 1 << 20])
@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("self_attn.q_proj", Part(0, 8, 24)),
        ("self_attn.q_proj", Part(1, 16, 48)),
        ("mlp.down_proj", Part(0, 5, 6)),
        ("mlp.down_proj", Part(1, 3, 50)),
    ],
)
def test_parts_of_a_quantised_matrix(
    quantised: GgufSource, monkeypatch: pytest.MonkeyPatch, name: str, part: Part, piece: int
) -> None:
    """Rows of queries and keys are put into another order, head by head."""
    name = f"model.layers.0.{name}.weight"
    whole = torch.empty(32, 64)
    quantised.read(name, None, whole)
    monkeypatch.setattr(gguf_source, "_PIECE", piece)
    expected = whole.narrow(part.dim, part.start, part.stop - part.start)
    room = torch.empty(expected.shape, dtype=torch.bfloat16)
    quantised.read(name, part, room)
    assert torch.equal(room, expected.bfloat16())


def test_a_damaged_part_of_a_gguf_file_is_found_while_it_is_read(tmp_path: Path) -> None:
    tensors = {"token_embd.weight": np.ones((10, 32), np.float32)}
    path = write_gguf(tmp_path / "model.gguf", tensors=tensors)
    header = read_gguf_header(path)
    source = GgufSource(header, config_of_gguf(header))
    path.write_bytes(path.read_bytes()[:-64])
    with pytest.raises(Exception, match="truncated while it was read"):
        source.read("model.embed_tokens.weight", None, torch.empty(10, 32))
