"""Model files: tensors of all dtypes and layouts, kinds of paths, and the exact bytes of the format."""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from pathlib import Path

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

from sb_dqn.checkpoint import model_info, read_archive, write_archive
from sb_dqn.checkpoint.format.safetensors_stream import CHUNK, DTYPES, chunks, plan, read
from sb_dqn.errors import CheckpointError, ConfigurationError
from sb_dqn.version import __version__
from tests.marks import SLOW

GOLDEN = "f5a03f56bf8497750605ec3ffed3a44d9c5d5f08ff23b1eadf66d43bfd3c3e5f"
GOLDEN_FILE = Path(__file__).with_name("golden_v1.zip")


def tensors_of_every_kind() -> dict[str, torch.Tensor]:
    grid = torch.arange(120, dtype=torch.float32).reshape(2, 3, 4, 5)
    weight = torch.arange(6.0).reshape(2, 3)
    return {
        **{f"dtype/{name}": torch.tensor([0, 1, 1]).to(dtype) for name, dtype in DTYPES.items()},
        "zero-d": torch.tensor(2.5),
        "empty": torch.zeros(0, 3),
        "another empty": torch.zeros(0, 3),
        "channels_last": grid.to(memory_format=torch.channels_last),
        "channels_last_3d": torch.rand(2, 3, 2, 2, 2).to(memory_format=torch.channels_last_3d),
        "transposed": weight.T,
        "strided": grid[:, :, ::2],
        "expanded": torch.tensor([[1.0], [2.0]]).expand(2, 4),
        "parameter": torch.nn.Parameter(weight),
        "tied": weight,
        "bf16 nan": torch.tensor([float("nan"), float("inf")], dtype=torch.bfloat16),
    }


def same(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Compares dtype, shape and bits."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    return torch.equal(*(t.detach().contiguous().reshape(-1).view(torch.uint8) for t in (left, right)))


def test_tensors_of_every_kind_round_trip_exactly(tmp_path: Path) -> None:
    tensors = tensors_of_every_kind()
    write_archive(tmp_path / "m", {"kind": "model"}, {"policy": tensors, "none": {}})
    _, members = read_archive(tmp_path / "m")
    assert members["none"] == {}
    assert members["policy"].keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert same(members["policy"][name], tensor), name


def test_memory_formats_and_ties_round_trip(tmp_path: Path) -> None:
    tensors = tensors_of_every_kind()
    manifest, members = read_archive(write_archive(tmp_path / "m", {"kind": "model"}, {"policy": tensors}) or "")
    restored = members["policy"]
    assert restored["channels_last"].stride() == tensors["channels_last"].stride()
    assert restored["channels_last_3d"].stride() == tensors["channels_last_3d"].stride()
    assert restored["transposed"].is_contiguous()
    assert restored["tied"] is restored["parameter"]
    assert manifest["members"]["policy"]["aliases"] == {"tied": "parameter"}
    assert restored["empty"] is not restored["another empty"]


def test_overlapping_views_are_not_tied(tmp_path: Path) -> None:
    flat = torch.arange(12.0)
    tensors = {"flat": flat, "first": flat[:6], "matrix": flat[:6].view(2, 3), "second": flat[6:]}
    manifest, members = read_archive(write_archive(tmp_path / "m", {"kind": "model"}, {"p": tensors}) or "")
    assert "aliases" not in manifest["members"]["p"]
    assert all(same(members["p"][name], tensor) for name, tensor in tensors.items())


def test_the_safetensors_package_reads_our_members(tmp_path: Path) -> None:
    tensors = {name: t.contiguous() for name, t in tensors_of_every_kind().items() if name not in ("tied", "parameter")}
    path = write_archive(tmp_path / "m", {"kind": "model"}, {"policy": tensors})
    with zipfile.ZipFile(path or "") as archive:
        by_package = safetensors.torch.load(archive.read("policy.safetensors"))
    assert by_package.keys() == tensors.keys()
    assert all(same(by_package[name], tensor) for name, tensor in tensors.items())


def test_members_written_by_the_safetensors_package_are_read(tmp_path: Path) -> None:
    tensors = {"b": torch.rand(3, 4), "a": torch.arange(3), "c": torch.tensor([True, False])}
    raw = safetensors.torch.save(tensors, metadata={"format": "pt"})
    entry = {"length": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
    with zipfile.ZipFile(tmp_path / "m.zip", "w") as archive:
        archive.writestr("p.safetensors", raw)
        archive.writestr("manifest.json", json.dumps({"format_version": 1, "kind": "x", "members": {"p": entry}}))
    _, members = read_archive(tmp_path / "m.zip")
    assert all(same(members["p"][name], tensor) for name, tensor in tensors.items())


@SLOW
@given(
    st.dictionaries(
        st.text(max_size=8).filter(lambda name: name != "__metadata__"),
        st.tuples(st.sampled_from(sorted(DTYPES)), st.lists(st.integers(0, 4), max_size=4), st.integers(0, 2**32 - 1)),
        max_size=6,
    )
)
def test_any_names_dtypes_and_shapes_round_trip(spec: dict[str, tuple[str, list[int], int]]) -> None:
    tensors = {}
    for name, (dtype, shape, seed) in spec.items():
        numbers = torch.randint(0, 2, shape, generator=torch.Generator().manual_seed(seed))
        tensors[name] = numbers.to(DTYPES[dtype])
    file = io.BytesIO()
    write_archive(file, {"kind": "x"}, {"m": tensors})
    _, members = read_archive(file)
    assert members["m"].keys() == tensors.keys()
    assert all(same(members["m"][name], tensor) for name, tensor in tensors.items())


def golden_file() -> bytes:
    file = io.BytesIO()
    tensors = {
        "weight": torch.arange(6, dtype=torch.float32).reshape(2, 3),
        "steps": torch.tensor(7),
        "frames": torch.arange(5, dtype=torch.uint8),
        "half": torch.tensor([1.0, -2.0], dtype=torch.bfloat16),
    }
    tensors["tied"] = tensors["weight"]
    image = torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last)
    write_archive(file, {"kind": "model", "n": 1.5}, {"state": {"image": image}, "policy": tensors})
    return file.getvalue()


def test_golden_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The format is pinned: when this fails, FORMAT_VERSION must grow and `golden_v1.zip` must still load."""
    monkeypatch.setattr("sb_dqn.checkpoint.format.zip_writer.__version__", "0.0.0")
    raw = golden_file()
    assert hashlib.sha256(raw).hexdigest() == GOLDEN
    assert raw == GOLDEN_FILE.read_bytes()


def test_the_golden_file_loads() -> None:
    manifest, members = read_archive(GOLDEN_FILE)
    assert (manifest["kind"], manifest["n"], manifest["sb_dqn_version"]) == ("model", 1.5, "0.0.0")
    policy = members["policy"]
    assert policy["weight"].tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert policy["tied"] is policy["weight"]
    assert policy["steps"].shape == ()
    assert policy["half"].tolist() == [1.0, -2.0]
    assert members["state"]["image"].is_contiguous(memory_format=torch.channels_last)
    assert members["state"]["image"].reshape(-1).tolist() == list(range(24))


def test_equal_contents_give_equal_bytes() -> None:
    assert golden_file() == golden_file()


def test_the_manifest_has_version_kind_length_and_digest(tmp_path: Path) -> None:
    path = write_archive(tmp_path / "m.zip", {"kind": "model", "gamma": 0.99}, {"p": {"w": torch.ones(2)}})
    info = model_info(path or "")
    with zipfile.ZipFile(path or "") as archive:
        raw = archive.read("p.safetensors")
    assert info == {
        "format_version": 1,
        "sb_dqn_version": __version__,
        "kind": "model",
        "gamma": 0.99,
        "members": {"p": {"length": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}},
    }


def test_only_selects_the_members_to_read(tmp_path: Path) -> None:
    path = write_archive(tmp_path / "m", {"kind": "x"}, {"a": {"w": torch.ones(2)}, "b": {}}) or ""
    assert read_archive(path, only=["b"])[1] == {"b": {}}
    with pytest.raises(CheckpointError, match=r"must be one of \['a', 'b'\], got 'c'"):
        read_archive(path, only=["c"])


@pytest.mark.parametrize(
    ("path", "written"), [("m", "m.zip"), ("m.zip", "m.zip"), ("m.pt", "m.pt"), ("x/y/m", "x/y/m.zip")]
)
def test_suffix_and_parent_folders_as_in_stable_baselines3(tmp_path: Path, path: str, written: str) -> None:
    for target in (tmp_path / path, str(tmp_path / path)):
        assert write_archive(target, {"kind": "x"}, {"p": {}}) == tmp_path / written
        assert read_archive(target)[0]["kind"] == "x"


def test_open_files_and_buffers(tmp_path: Path) -> None:
    buffer = io.BytesIO(b"older and longer contents" * 1000)
    assert write_archive(buffer, {"kind": "first"}, {"p": {"w": torch.ones(2)}}) is None
    assert write_archive(buffer, {"kind": "second"}, {"p": {"w": torch.ones(3)}}) is None
    assert model_info(buffer)["kind"] == "second"
    assert not buffer.closed
    with open(tmp_path / "m.zip", "wb") as file:
        write_archive(file, {"kind": "x"}, {"p": {}})
    with open(tmp_path / "m.zip", "rb") as file:
        assert read_archive(file)[0]["kind"] == "x"


def test_text_files_pipes_and_other_objects_are_refused(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    with (
        os.fdopen(read_end, "rb"),
        os.fdopen(write_end, "wb") as pipe,
        pytest.raises(ConfigurationError, match="must support seeking"),
    ):
        write_archive(pipe, {"kind": "x"}, {})
    for odd in (io.StringIO(), 3, None):
        with pytest.raises(ConfigurationError, match="must be a str, a Path or a binary file"):
            write_archive(odd, {"kind": "x"}, {})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("manifest", "members", "message"),
    [
        ({"kind": "x", "rate": float("nan")}, {}, "must be plain JSON"),
        ({"kind": "x", "rate": {1, 2}}, {}, "must be plain JSON"),
        ({"kind": "x"}, {"p": {"s": torch.eye(2).to_sparse()}}, "'s' must be dense"),
        ({"kind": "x"}, {"p": {"s": torch.empty(2, device="meta")}}, "'s' must be dense and have values"),
        (
            {"kind": "x"},
            {"p": {"s": torch.zeros(1, dtype=torch.complex128)}},
            "dtype of tensor 's' must be .* got torch.complex128",
        ),
    ],
)
def test_invalid_contents_are_refused_and_the_old_file_stays(
    tmp_path: Path, manifest: dict, members: dict, message: str
) -> None:
    write_archive(tmp_path / "m", {"kind": "old"}, {})
    with pytest.raises(CheckpointError, match=message):
        write_archive(tmp_path / "m", manifest, members)
    assert model_info(tmp_path / "m")["kind"] == "old"
    assert os.listdir(tmp_path) == ["m.zip"]
    with open(tmp_path / "m.zip", "r+b") as file:
        with pytest.raises(CheckpointError, match=message):
            write_archive(file, manifest, members)
        assert model_info(file)["kind"] == "old"


def test_a_large_manifest_is_refused_at_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sb_dqn.checkpoint.format.zip_writer.MAX_MANIFEST", 1000)
    with pytest.raises(CheckpointError, match="at most 1000 bytes"):
        write_archive(tmp_path / "m", {"kind": "x" * 1000}, {})
    assert os.listdir(tmp_path) == []


def test_large_tensors_are_streamed_in_both_directions() -> None:
    """Chunks are views of the tensor's memory, and reading fills one tensor: no second copy exists."""
    large = torch.arange(5 * CHUNK + 3, dtype=torch.int64).to(torch.uint8)
    layout = plan("replay", {"frames": large})
    header, *pieces = chunks(layout)
    assert [len(piece) for piece in pieces] == [CHUNK] * 5 + [3]
    large[0], large[-1] = 77, 78
    assert (pieces[0][0], pieces[-1][-1]) == (77, 78)
    data = b"".join([header, *pieces])
    stream = io.BytesIO(data)
    counts = []

    def source(count: int) -> bytes:
        counts.append(count)
        return stream.read(count)

    tensors = read("replay", layout.length, source, {}, {}, hashlib.sha256(data).hexdigest())
    assert torch.equal(tensors["frames"], large)
    assert max(counts) == CHUNK
