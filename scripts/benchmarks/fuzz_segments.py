"""Fuzzer for incremental checkpoints: damaged and hostile files must raise a clear error, run no code and write no file.

Usage: python scripts/benchmarks/fuzz_segments.py [--minutes 2] [--seed 0]

Mutations: the manifest's entries of segments; the header, the bytes and the length of a segment, with length and digest
corrected in the manifest, so that they pass the first checks; files removed, exchanged, replaced by links. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that this runs as a file, from anywhere

import numpy as np

from sb_dqn import DQN
from sb_dqn.checkpoint import model_info
from sb_dqn.checkpoint.incremental import row_blocks
from scripts.benchmarks.fuzz_reader import ALLOWED, SETTINGS, Watch, change, members, zipped

WAYS = ("manifest", "header", "bytes", "length", "remove", "exchange", "link")


def good_folder(folder: Path) -> Path:
    """A checkpoint of a ring that has wrapped, with about ten segments."""
    model = DQN("MlpPolicy", "CartPole-v1", **{**SETTINGS, "buffer_size": 120}, prioritized_replay=True)
    model.learn(150).save(folder / "a", full=True, incremental=True)
    return folder


def mutate(good: Path, folder: Path, rng: np.random.Generator) -> str:
    """Makes `folder` a damaged or hostile copy of `good`; answers how."""
    shutil.copytree(good, folder)
    parts = members((good / "a.zip").read_bytes())
    manifest = json.loads(parts.pop("manifest.json"))
    files = manifest["segments"]["files"]
    one, other = (files[number] for number in rng.permutation(len(files))[:2])
    path, how = folder / "replay_rows" / one["name"], str(rng.choice(WAYS))
    if how == "manifest":
        manifest["segments"] = change(manifest["segments"], rng)
    elif how in ("header", "bytes", "length"):
        data = _spoiled(path.read_bytes(), how, rng)
        path.write_bytes(data)
        one |= {"length": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    elif how == "exchange":
        one["name"], other["name"] = other["name"], one["name"]
    else:
        path.unlink()
        if how == "link":
            path.symlink_to(good / "replay_rows" / one["name"])
    (folder / "a.zip").write_bytes(zipped(parts, manifest))
    return how


def _spoiled(data: bytes, how: str, rng: np.random.Generator) -> bytes:
    size = int.from_bytes(data[:8], "little")
    if how == "header":
        header = json.dumps(change(json.loads(data[8 : 8 + size]), rng)).encode()
        return len(header).to_bytes(8, "little") + header + data[8 + size :]
    if how == "length":
        return data[: rng.integers(8, len(data))] if rng.random() < 0.5 else data + bytes(int(rng.integers(1, 99)))
    spoiled = bytearray(data)
    for at in rng.integers(len(data), size=4):
        spoiled[at] = int(rng.integers(256))
    return bytes(spoiled)


def attempt(folder: Path, watch: Watch) -> tuple[str, Exception | None]:
    """The name of what came of loading a folder, and the error that no reader should raise."""
    watch.on = True
    try:
        DQN.load(folder, env="CartPole-v1", device="cpu")
    except ALLOWED as error:
        return type(error).__name__, None
    except Exception as error:
        return type(error).__name__, error
    finally:
        watch.on = False
    return "loaded", None


def main() -> None:
    """Mutates, loads, and counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    row_blocks.BLOCK_BYTES = 500
    rng, watch, outcomes, faults = np.random.default_rng(options.seed), Watch(), Counter[str](), list[str]()
    with tempfile.TemporaryDirectory() as scratch:
        good, folder = good_folder(Path(scratch) / "good"), Path(scratch) / "bad"
        DQN.load(good, env="CartPole-v1", device="cpu")  # everything that is imported late is imported now
        assert len(model_info(good / "a.zip")["segments"]["files"]) > 3
        ends = time.monotonic() + 60 * options.minutes
        while time.monotonic() < ends:
            shutil.rmtree(folder, ignore_errors=True)
            how = mutate(good, folder, rng)
            before: Any = sorted(os.listdir(folder))
            outcome, fault = attempt(folder, watch)
            outcomes[f"{how}: {outcome}"] += 1
            if fault is not None or sorted(os.listdir(folder)) != before:
                faults.append(f"{how}: {fault!r}"[:200])
    print(json.dumps({
        "folders": outcomes.total(), "outcomes": dict(sorted(outcomes.items())), "faults": faults[:9], "code": watch.seen[:5],
    }, indent=1))  # fmt: skip


if __name__ == "__main__":
    main()
