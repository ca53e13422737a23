"""GGUF headers: what comes out, and what is refused."""

from pathlib import Path

import gguf
import numpy as np
import pytest
from distserve_testing.models import write_gguf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distserve_worker.weights.errors import ModelInvalid
from distserve_worker.weights.gguf_header import read_gguf_header

METADATA = {
    "a.count": 7,
    "a.share": 0.25,
    "a.flag": True,
    "a.name": "Łódź",
    "a.words": ["", "two", "żó"],
    "a.numbers": [1, 2, 3],
}


def test_metadata_comes_back_as_it_was_written(tmp_path: Path) -> None:
    metadata = read_gguf_header(write_gguf(tmp_path / "model.gguf", METADATA)).metadata
    assert {key: metadata[key] for key in METADATA} == METADATA
    assert metadata["general.architecture"] == "llama"


def test_tensors_are_found_where_they_lie(tmp_path: Path) -> None:
    tensors = {"first": np.arange(6, dtype=np.float32).reshape(2, 3), "second": np.ones(5, dtype=np.float32)}
    path = write_gguf(tmp_path / "model.gguf", tensors=tensors)
    header = read_gguf_header(path)
    for name, expected in tensors.items():
        tensor = header.tensors[name]
        assert tensor.shape == expected.shape
        raw = path.read_bytes()[tensor.offset : tensor.offset + expected.nbytes]
        assert np.array_equal(np.frombuffer(raw, np.float32).reshape(tensor.shape), expected)


def test_the_header_of_smollm2_is_what_the_gguf_library_reads(smollm2_path: Path) -> None:
    header = read_gguf_header(smollm2_path)
    reader = gguf.GGUFReader(smollm2_path)
    tensors = [(t.name, t.ggml_type, t.offset, t.shape) for t in header.tensors.values()]
    assert tensors == [
        (t.name, t.tensor_type.value, t.data_offset, tuple(reversed(t.shape.tolist()))) for t in reader.tensors
    ]
    fields = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    assert header.metadata == fields


def test_a_file_of_another_kind_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"PK\x03\x04" + bytes(100))
    with pytest.raises(ModelInvalid, match=r"model\.gguf: not a GGUF file"):
        read_gguf_header(path)


def test_an_empty_file_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.touch()
    with pytest.raises(ModelInvalid, match=r"model\.gguf: not a GGUF file"):
        read_gguf_header(path)


def test_an_unknown_version_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF" + (9).to_bytes(4, "little") + bytes(16))
    with pytest.raises(ModelInvalid, match=r"version 9 is not known \(known: \(2, 3\)\)"):
        read_gguf_header(path)


@pytest.mark.parametrize("alignment", [0, "wide"])
def test_an_impossible_alignment_is_refused(tmp_path: Path, alignment: int | str) -> None:
    path = write_gguf(tmp_path / "model.gguf", {"general.alignment": alignment})
    with pytest.raises(ModelInvalid, match=f"general.alignment is {alignment}"):
        read_gguf_header(path)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0.0, 0.999))
def test_a_header_cut_anywhere_is_refused_with_its_path(tmp_path: Path, share: float) -> None:
    path = write_gguf(tmp_path / "model.gguf", METADATA)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * (len(whole) - 32))])  # the last bytes may be padding
    with pytest.raises(ModelInvalid, match=r"model\.gguf"):
        read_gguf_header(path)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_header_never_raises_anything_else(tmp_path: Path, data: st.DataObject) -> None:
    path = write_gguf(tmp_path / "model.gguf", METADATA, {"tensor": np.ones(4, dtype=np.float32)})
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        read_gguf_header(path)
    except ModelInvalid as error:
        assert str(path) in str(error)  # noqa: PT017 - an undamaged reading is fine too
