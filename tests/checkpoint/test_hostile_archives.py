"""Damaged, foreign and malicious files: each raises a clear error, none runs code or loads partly."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from sb_dqn.checkpoint import model_info, read_archive, write_archive
from sb_dqn.errors import CheckpointError


def good_file() -> bytes:
    file = io.BytesIO()
    tensors = {"w": torch.arange(40.0).reshape(5, 8), "b": torch.arange(8), "flag": torch.tensor([True, False])}
    tensors["tied"] = tensors["w"]
    write_archive(file, {"kind": "model", "gamma": 0.99}, {"policy": tensors, "optimizer": {"step": torch.tensor(3)}})
    return file.getvalue()


GOOD = good_file()


def contents(raw: bytes) -> tuple[Any, Any]:
    manifest, members = read_archive(io.BytesIO(raw))
    listed = {m: {k: (str(t.dtype), t.tolist()) for k, t in tensors.items()} for m, tensors in members.items()}
    return manifest, listed


def build(members: dict[str, bytes] | list[tuple[str, bytes]], manifest: Any = None, **kwargs: Any) -> io.BytesIO:
    """Builds a zip by hand; the default manifest has the right lengths and digests of the members."""
    pairs = list(members.items()) if isinstance(members, dict) else members
    if manifest is None:
        entries = {
            name.removesuffix(".safetensors"): {"length": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
            for name, raw in pairs
            if name.endswith(".safetensors")
        }
        manifest = {"format_version": 1, "kind": "model", "members": entries}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", **kwargs) as archive:
        for name, raw in pairs:
            archive.writestr(name, raw)
        archive.writestr("manifest.json", manifest if isinstance(manifest, (str, bytes)) else json.dumps(manifest))
    return file


def tensor_bytes(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def test_a_correct_file_built_by_hand_is_read() -> None:
    """The tests below each change one thing in this correct file."""
    raw = tensor_bytes({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, bytes(8))
    _, members = read_archive(build({"p.safetensors": raw}))
    assert members["p"]["w"].tolist() == [0.0, 0.0]


def test_truncation_at_any_byte_is_refused() -> None:
    for length in range(len(GOOD)):
        with pytest.raises(CheckpointError, match="truncated|empty|not a zip"):
            read_archive(io.BytesIO(GOOD[:length]))


def test_truncated_and_extended_files_are_reported() -> None:
    with pytest.raises(CheckpointError, match=f"truncated or has extra bytes at its end: {len(GOOD) - 30} bytes"):
        read_archive(io.BytesIO(GOOD[:-30]))
    with pytest.raises(CheckpointError, match="extra bytes at its end"):
        read_archive(io.BytesIO(GOOD + b"more"))


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_a_flipped_byte_is_detected_or_has_no_effect(mask: int) -> None:
    """Flips every byte of the file in turn; bytes without content (timestamps) may change undetected."""
    right, refused = contents(GOOD), 0
    for place in range(len(GOOD)):
        raw = bytearray(GOOD)
        raw[place] ^= mask
        try:
            found = contents(bytes(raw))
        except CheckpointError:
            refused += 1
        else:
            assert found == right, f"byte {place} changed the contents undetected"
    assert refused > 0.8 * len(GOOD)


@pytest.mark.parametrize("member", ["policy", "optimizer"])
def test_a_flipped_byte_in_a_tensor_names_the_member(member: str) -> None:
    with zipfile.ZipFile(io.BytesIO(GOOD)) as archive:
        entry = archive.getinfo(f"{member}.safetensors")
    raw = bytearray(GOOD)
    raw[entry.header_offset + 30 + len(entry.filename) + entry.file_size - 1] ^= 1
    with pytest.raises(
        CheckpointError, match=rf"member '{member}.safetensors' (is damaged|was altered|bool tensor|'flag')"
    ):
        read_archive(io.BytesIO(bytes(raw)))


def test_a_replaced_member_of_the_same_length_is_refused() -> None:
    with zipfile.ZipFile(io.BytesIO(GOOD)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    manifest = members.pop("manifest.json")
    other = bytearray(members["policy.safetensors"])
    other[-5] ^= 1
    with pytest.raises(CheckpointError, match=r"member 'policy.safetensors' was altered: its SHA-256"):
        read_archive(build({**members, "policy.safetensors": bytes(other)}, manifest))


def test_missing_files_suggest_the_nearest_names(tmp_path: Path) -> None:
    write_archive(tmp_path / "cartpole_best", {"kind": "x"}, {})
    with pytest.raises(FileNotFoundError, match=r"no file .*cartpol_best.* Did you mean 'cartpole_best.zip'"):
        read_archive(tmp_path / "cartpol_best")
    with pytest.raises(CheckpointError, match=r"the folder .*nowhere does not exist"):
        model_info(tmp_path / "nowhere" / "m.zip")
    with pytest.raises(CheckpointError, match="path must be a file, got the folder .*Pass the .zip"):
        model_info(tmp_path)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "is empty"),
        (b"not a zip at all", "it is not a zip"),
        (pickle.dumps({"a": 1}), "it is a pickle, as Stable-Baselines3 writes replay buffers"),
        (b"PK\x03\x04" + bytes(100), "truncated"),
        (b"PK\x05\x06" + bytes(18), "is a zip, but not a model file of sb_dqn: it has no 'manifest.json'"),
    ],
)
def test_files_of_other_kinds(raw: bytes, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        read_archive(io.BytesIO(raw))


def test_a_stable_baselines3_file_is_recognized() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in ("data", "policy.pth", "pytorch_variables.pth", "_stable_baselines3_version"):
            archive.writestr(name, b"{}")
    with pytest.raises(CheckpointError, match="is a Stable-Baselines3 model"):
        read_archive(file)


def test_a_torch_file_is_refused(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(3)}, tmp_path / "m.zip")
    with pytest.raises(CheckpointError, match=r"not a model file of sb_dqn|save\(\) writes no such member"):
        read_archive(tmp_path / "m.zip")


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.write_text, (self.path, "ran"))


def test_a_pickle_is_refused_and_does_not_run(tmp_path: Path) -> None:
    raw = pickle.dumps(Bomb(tmp_path / "proof"))
    for name in ("policy.pkl", "policy.safetensors", "data.pth"):
        with pytest.raises(CheckpointError):
            read_archive(build({name: raw}))
    assert not (tmp_path / "proof").exists()
    pickle.loads(raw)  # the control: unpickling runs it
    assert (tmp_path / "proof").exists()


@pytest.mark.parametrize(
    "name",
    [
        "../x.safetensors",
        "/x.safetensors",
        "a/b.safetensors",
        "..\\x.safetensors",
        "C:x.safetensors",
        ".x.safetensors",
        "x.txt",
        "d/",
    ],
)
def test_member_names_that_are_paths_or_other_file_types(name: str) -> None:
    with pytest.raises(CheckpointError, match="has a name that is not allowed"):
        read_archive(build({name: b""}))


def test_duplicate_members_are_refused() -> None:
    raw = tensor_bytes({})
    with pytest.warns(UserWarning, match="Duplicate name"):
        file = build([("p.safetensors", raw), ("p.safetensors", raw)])
    with pytest.raises(CheckpointError, match=r"member 'p.safetensors' occurs 2 times"):
        read_archive(file)


def test_compressed_members_are_refused() -> None:
    file = build({"p.safetensors": tensor_bytes({}, bytes(10_000_000))}, compression=zipfile.ZIP_DEFLATED)
    assert len(file.getvalue()) < 20_000
    with pytest.raises(CheckpointError, match=r"'p.safetensors' is compressed"):
        read_archive(file)


def test_links_and_encrypted_members_are_refused() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        link = zipfile.ZipInfo("p.safetensors")
        link.create_system, link.external_attr = 3, 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
        archive.writestr("manifest.json", "{}")
    with pytest.raises(CheckpointError, match=r"'p.safetensors' is a link"):
        read_archive(file)
    raw = bytearray(build({"p.safetensors": tensor_bytes({})}).getvalue())
    raw[raw.index(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(CheckpointError, match=r"'p.safetensors' is encrypted"):
        read_archive(io.BytesIO(bytes(raw)))


def test_limits_on_manifest_size_and_member_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sb_dqn.checkpoint.format.zip_reader.MAX_MANIFEST", 100)
    with pytest.raises(CheckpointError, match="'manifest.json' must have at most 100 bytes, got 500"):
        read_archive(build({}, b"x" * 500))
    monkeypatch.setattr("sb_dqn.checkpoint.format.zip_reader.MAX_MEMBERS", 2)
    with pytest.raises(CheckpointError, match="must have at most 2 members, got 4"):
        read_archive(build({f"{i}.safetensors": tensor_bytes({}) for i in range(3)}))


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ("{", "'manifest.json' is damaged"),
        (b"\xff\xfe", "'manifest.json' is damaged"),
        ("[" * 100_000 + "]" * 100_000, "'manifest.json' is damaged|no format_version"),
        ("[]", "has no format_version"),
        ("{}", "has no format_version"),
        ('{"format_version": "1"}', "has no format_version"),
        ('{"format_version": 1}', "must list the length and digest"),
        ('{"format_version": 1, "members": {"p": {"length": 1}}}', "must list the length and digest"),
        (
            '{"format_version": 1, "members": {"p": {"length": 1, "sha256": "", "aliases": []}}}',
            "must list the length",
        ),
        (
            '{"format_version": 1, "members": {"p": {"length": 1, "sha256": ""}}}',
            "'p.safetensors' must have 1 bytes, as in the manifest, got 10",
        ),
        ('{"format_version": 1, "members": {}}', "'p.safetensors' is not listed in the manifest"),
        (
            '{"format_version": 1, "members": {"p": {"length": 10, "sha256": ""}, "q": {"length": 1, "sha256": ""}}}',
            "'q.safetensors' is missing",
        ),
        (
            '{"format_version": 99, "sb_dqn_version": "7.0"}',
            r"has format version 99, written by sb_dqn 7\.0\. This is sb_dqn .*, which reads versions up to 1\. Update",
        ),
    ],
)
def test_malformed_manifests_are_refused(manifest: str | bytes, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        read_archive(build({"p.safetensors": tensor_bytes({})}, manifest))


def entry(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "ends too early|claims"),
        (b"\x01", "claims"),
        ((2**63).to_bytes(8, "little") + b"{}", "the header claims 9223372036854775808 bytes in a member of 10"),
        (tensor_bytes(b"{"), "the header is damaged or altered"),
        (tensor_bytes(b"[]"), "the header is damaged or altered"),
        (tensor_bytes(b'{"w": 3}'), "the header is damaged or altered"),
        (tensor_bytes(b"[" * 50_000), "the header is damaged or altered"),
        (tensor_bytes(b'{"w": {}, "w": {}}'), "a name occurs twice"),
        (tensor_bytes({"w": entry("F33")}, bytes(8)), "unknown dtype 'F33'"),
        (tensor_bytes({"w": entry(["F32"])}, bytes(8)), "the header is damaged or altered"),
        (tensor_bytes({"w": entry(shape=[-2])}, bytes(8)), "shape and offsets of tensor 'w' must be integers >= 0"),
        (tensor_bytes({"w": entry(shape=[2.0])}, bytes(8)), "must be integers >= 0"),
        (tensor_bytes({"w": entry(shape=[True, 2])}, bytes(8)), "must be integers >= 0"),
        (tensor_bytes({"w": {"dtype": "F32", "shape": "", "data_offsets": [0, 4]}}, bytes(4)), "must be integers >= 0"),
        (tensor_bytes({"w": entry(offsets=[8, 0])}, bytes(8)), "do not match its shape"),
        (tensor_bytes({"w": entry(offsets=[-8, 0])}, bytes(8)), "must be integers >= 0"),
        (tensor_bytes({"w": entry(shape=[3])}, bytes(8)), "do not match its shape"),
        (tensor_bytes({"w": entry(shape=[2**62, 2**62])}, bytes(8)), "do not match its shape"),
        (tensor_bytes({"w": entry(shape=[2**40], offsets=[0, 2**42])}, bytes(8)), "the tensors end at byte"),
        (tensor_bytes({"w": entry(), "v": entry()}, bytes(8)), "'[vw]' do not match its shape"),
        (tensor_bytes({"w": entry(), "v": entry(offsets=[4, 12])}, bytes(12)), "do not match its shape"),
        (tensor_bytes({"w": entry(), "v": entry(offsets=[12, 20])}, bytes(20)), "do not match its shape"),
        (tensor_bytes({"w": entry()}, bytes(9)), "the tensors end at byte"),
        (tensor_bytes({"w": entry("BOOL", [1], [0, 1])}, b"\x02"), "'w' must hold bytes of 0 or 1"),
    ],
)
def test_malformed_tensor_headers_are_refused(raw: bytes, message: str) -> None:
    with pytest.raises(CheckpointError, match=rf"member 'p.safetensors'.*({message})"):
        read_archive(build({"p.safetensors": raw}))


def test_aliases_and_formats_that_do_not_match_the_tensors() -> None:
    raw = tensor_bytes({"w": entry()}, bytes(8))
    described = {"length": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
    for extra, message in (
        ({"aliases": {"v": "u"}}, "'v' is tied to 'u', which is not in the member"),
        ({"formats": {"w": "channels_last"}}, "member 'p.safetensors'"),
        ({"formats": {"w": "sideways"}}, "memory format must be .* got 'sideways'"),
    ):
        manifest = {"format_version": 1, "kind": "x", "members": {"p": described | extra}}
        with pytest.raises(CheckpointError, match=message):
            read_archive(build({"p.safetensors": raw}, manifest))
