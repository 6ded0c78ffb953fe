"""Fuzzer for model files: damaged and hostile files must raise a clear error, run no code and write no file.

Usage: python scripts/benchmarks/fuzz_reader.py [--minutes 10] [--seed 0]

Mutations: bytes flipped, removed, doubled; members exchanged, emptied, filled with pickles; numbers, types and names changed
at random places of the manifest, with lengths and digests corrected, so that they pass the first checks. An audit hook watches
for code: pickles, exec, imports, processes, files opened for writing. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import io
import json
import os
import pickle
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that this runs as a file, from anywhere

import numpy as np

from sb_dqn import DQN, QRDQN
from sb_dqn.accelerate import backends
from sb_dqn.errors import CheckpointError, ConfigurationError, EnvironmentFault, MemoryBudgetError

ALLOWED = (CheckpointError, ConfigurationError, MemoryBudgetError, EnvironmentFault)
"""What a refusal may be; anything else is a fault of the reader."""
SECONDS = 5.0
"""Of learning on from a file that could be read."""
FORBIDDEN = (
    "pickle.find_class",
    "exec",
    "os.system",
    "os.exec",
    "subprocess.Popen",
    "os.posix_spawn",
    "socket.connect",
)
VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2**31, 2**63, 10**30, 0.5, -1e300, "", "x", "../../etc/passwd", [], {}, [[]], ["a"], {"a": 1},
    {"~": "tensor", "at": "x"}, {"~": "pickle", "data": ""}, {"~": "import", "path": "os:system"}, {"~": "class", "name": "Adam"},
    {"~": "tuple", "items": 3}, {"~": "int", "value": "0xfffffffffffffffffffffffff"}, {"~": "float", "value": "nan"},
    {"~": "object", "name": "Linear", "fields": {}}, {"~": "partial", "func": 3, "args": [], "keywords": {}},
)  # fmt: skip
SETTINGS: dict[str, Any] = {
    "buffer_size": 200, "learning_starts": 10, "batch_size": 8, "policy_kwargs": {"net_arch": [8]}, "seed": 0, "device": "cpu",
}  # fmt: skip


class Watch:
    """What happened inside Python while a file was read."""

    def __init__(self) -> None:
        self.on = False
        self.seen: list[str] = []
        sys.addaudithook(self)

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event in FORBIDDEN and not (event == "exec" and _is_own(arguments)):
            self.seen.append(f"{event} {arguments!r}"[:200])
        elif event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
            self.seen.append(f"open {arguments!r}"[:200])


def _is_own(arguments: tuple[Any, ...]) -> bool:
    """Code objects of modules that are loaded late, of dataclasses, of torch's traces, and of its compiler's templates."""
    name = getattr(arguments[0], "co_filename", "")
    return (
        name.startswith((sys.prefix, sys.base_prefix, "<frozen", "<string>", "<template>", "<eval_with_key>"))
        or "sb_dqn" in name
    )


def members(raw: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(parts: dict[str, bytes], manifest: Any) -> bytes:
    """The parts as a file of ours, with lengths and digests that are right."""
    for name, raw in parts.items():
        entry = (
            manifest["members"].get(name.removesuffix(".safetensors"))
            if isinstance(manifest.get("members"), dict)
            else None
        )
        if isinstance(entry, dict):
            entry |= {"length": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, raw in parts.items():
            archive.writestr(name, raw)
        archive.writestr("manifest.json", json.dumps(manifest))
    return file.getvalue()


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of everything in a JSON tree."""
    inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [path, *(found for key, value in inner for found in places(value, (*path, key)))]


def change(tree: Any, rng: np.random.Generator) -> Any:
    """The tree with one place replaced, removed or renamed."""
    tree = copy.deepcopy(tree)
    found = [place for place in places(tree) if place and place[0] != "members"]
    place = found[rng.integers(len(found))]
    node = tree
    for key in place[:-1]:
        node = node[key]
    how = rng.integers(4)
    if how == 0:
        del node[place[-1]]
    elif how == 1 and isinstance(node, dict):
        node[f"{place[-1]}x"] = node.pop(place[-1])
    else:
        node[place[-1]] = copy.deepcopy(VALUES[rng.integers(len(VALUES))])
    return tree


class TooLong(Exception):
    """A state that was changed may ask for a million updates; that is no fault of the reader."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raises TooLong after some seconds."""

    def ring(number: int, frame: Any) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Bomb:
    """Writes a file when it is unpickled."""

    def __reduce__(self) -> Any:
        return (os.system, ("touch sb_dqn_was_here",))


def mutate(raw: bytes, rng: np.random.Generator) -> tuple[str, bytes]:
    """A damaged or hostile file, and how it came about."""
    how = str(rng.choice(["flip", "cut", "double", "manifest", "manifest", "manifest", "member", "pickle", "exchange"]))
    if how in ("flip", "cut", "double"):
        data = bytearray(raw)
        for _ in range(rng.integers(1, 5)):
            at, length = int(rng.integers(len(data))), int(rng.integers(1, 200))
            if how == "flip":
                data[at] ^= int(rng.integers(1, 256))
            elif how == "cut":
                del data[at : at + length]
            else:
                data[at:at] = data[at : at + length]
        return how, bytes(data)
    parts = members(raw)
    manifest = json.loads(parts.pop("manifest.json"))
    names = list(parts)
    name = names[rng.integers(len(names))]
    if how == "manifest":
        for _ in range(rng.integers(1, 3)):
            manifest = change(manifest, rng)
    elif how == "member":
        data = bytearray(parts[name])
        for _ in range(rng.integers(1, 6)):
            data[int(rng.integers(min(len(data), 2000)))] = int(rng.integers(256))  # most of the header lies there
        parts[name] = bytes(data)
    elif how == "pickle":
        parts[name] = pickle.dumps(Bomb())
    else:
        other = names[rng.integers(len(names))]
        parts[name], parts[other] = parts[other], parts[name]
    return how, zipped(parts, manifest)


def good_files() -> list[bytes]:
    """Models of two kinds, and full checkpoints."""
    made = []
    for cls, full, extra in (
        (DQN, False, {}),
        (DQN, True, {"prioritized_replay": True}),
        (QRDQN, True, {"n_quantiles": 4}),
    ):
        file = io.BytesIO()
        model = cls("MlpPolicy", "CartPole-v1", **SETTINGS, **extra)
        model.learn(40, callback=lambda locals_, _: locals_["self"].num_timesteps < 30).save(file, full=full)
        made.append(file.getvalue())
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    # torch keeps a few megabytes of every trace for ever: they would hide what the reader takes
    backends._traced = lambda function, example: function
    rng, watch, files = np.random.default_rng(options.seed), Watch(), good_files()
    for raw in files[1:]:
        DQN.load(io.BytesIO(raw), env="CartPole-v1").resume()  # everything that is imported late is imported now
    outcomes: Counter[str] = Counter()
    faults: list[str] = []
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        ends = time.monotonic() + 60 * options.minutes
        while time.monotonic() < ends:
            how, raw = mutate(files[rng.integers(len(files))], rng)
            env, watch.on = ("CartPole-v1" if rng.random() < 0.5 else None), True
            try:
                model = DQN.load(io.BytesIO(raw), env=env, device="cpu")
                outcomes[f"{how}: loaded"] += 1
                if (
                    env is not None
                    and model._resume_state is not None
                    and model._total_timesteps - model.num_timesteps < 100
                ):
                    with limited(SECONDS):
                        model.resume()
            except (*ALLOWED, TooLong) as error:
                outcomes[f"{how}: {type(error).__name__}"] += 1
            except Exception as error:
                last = traceback.extract_tb(error.__traceback__)[-1]
                faults.append(
                    f"{how}: {type(error).__name__}: {error}"[:200] + f" ({Path(last.filename).name}:{last.lineno})"
                )
            watch.on = False
        left = os.listdir(scratch)
        os.chdir("/")
    growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    kinds = Counter(faults).most_common(12)
    print(json.dumps({
        "files": sum(outcomes.values()) + len(faults), "outcomes": dict(sorted(outcomes.items())), "faults": len(faults),
        "kinds": kinds, "code": watch.seen[:5], "left behind": left, "memory grew by MiB": growth // 1024,
    }, indent=1))  # fmt: skip


if __name__ == "__main__":
    main()
