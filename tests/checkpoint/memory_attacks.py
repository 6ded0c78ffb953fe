"""Files that ask for far more memory than they have bytes; run as a module, prints how each attack ends.

Usage: python -m tests.checkpoint.memory_attacks [BEGINNING OF A NAME ...]

Prints a JSON object for each attack: its name, the exception or the warnings, the most memory that it took, and its processor time.
The process may take `MARGIN` bytes more than before the attack: one that takes more ends with a MemoryError.
"""

from __future__ import annotations

import functools
import io
import json
import pickle
import re
import resource
import struct
import sys
import time
import warnings
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import torch

import sb_dqn
from scripts.benchmarks.fuzz_reader import members, zipped
from tests.tiny import quick

MARGIN = 1 << 30
MANY = 10**9
ENV = "CartPole-v1"

# -- our own files


@functools.cache
def ours(kind: str = "DQN") -> bytes:
    """Returns a full checkpoint of a small model."""
    file = io.BytesIO()
    model = quick(ENV, algorithm=getattr(sb_dqn, kind))
    model.learn(40, callback=lambda locals_, _: locals_["self"].num_timesteps < 30).save(file, full=True)
    return file.getvalue()


def load_ours(changes: Mapping[str, Any], env: Any = None, kind: str = "DQN", **kwargs: Any) -> Any:
    """Loads a file with other entries of its manifest, named by paths; lengths and digests stay right."""
    parts = members(ours(kind))
    manifest = json.loads(parts.pop("manifest.json"))
    for path, value in changes.items():
        *outer, last = path.split("/")
        functools.reduce(lambda node, key: node[key], outer, manifest)[last] = value
    return getattr(sb_dqn, kind).load(io.BytesIO(zipped(parts, manifest)), env=env, device="cpu", **kwargs)


DISCRETE = {"kind": "Discrete", "n": MANY, "start": 0, "dtype": "int64"}
BRANCHES = {"kind": "MultiDiscrete", "dtype": "int64", "nvec": [MANY], "start": [0]}
BOX = {"kind": "Box", "dtype": "float64", "shape": [2**26], "low": 0.0, "high": 1.0}
SPACES: dict[str, dict[str, Any]] = {
    "a Discrete": DISCRETE,
    "a MultiBinary": {"kind": "MultiBinary", "n": MANY},
    "a MultiBinary of two axes": {"kind": "MultiBinary", "n": [30_000, 30_000]},
    "a MultiDiscrete": BRANCHES,
    "a MultiDiscrete of many branches": {**BRANCHES, "nvec": [1000] * 10**5, "start": [0] * 10**5},
    "a Box": BOX,
    "fifty Boxes": {"kind": "Dict", "spaces": [[str(number), BOX] for number in range(50)]},
    "fifty Discretes": {"kind": "Dict", "spaces": [[str(number), {**DISCRETE, "n": 10**6}] for number in range(50)]},
    "thirty thousand Boxes": {
        "kind": "Dict", "spaces": [[str(number), {**BOX, "shape": [1]}] for number in range(30_000)],
    },
}  # fmt: skip
ARGUMENTS: dict[str, tuple[str, Any]] = {
    "n_atoms": ("CategoricalDQN", MANY),
    "n_quantiles": ("QRDQN", MANY),
    "n_cosines": ("IQN", MANY),
    "batch_size": ("NoisyDQN", MANY),
    "buffer_size": ("DQN", 10**12),
    "n_steps": ("PPO", MANY),
    "policy_kwargs": ("DQN", {"net_arch": [1] * 50_000}),
}
ACTORS = ("process:20000", "process:1x300000", "overlapped:2x150000", "overlapped:150000x2", "ray:20000")


def our_attacks() -> dict[str, Callable[[], object]]:
    found: dict[str, Callable[[], object]] = {}
    for name, space in SPACES.items():
        policy = {"arguments/policy": "MultiInputPolicy"} if space["kind"] == "Dict" else {}
        changes = {"spaces/observation": space} | policy
        found[f"observations of {name}"] = functools.partial(load_ours, changes)
        found[f"observations of {name}, with an environment"] = functools.partial(load_ours, changes, ENV)
        found[f"actions of {name}"] = functools.partial(load_ours, {"spaces/action": space})
    for name, (kind, value) in ARGUMENTS.items():
        for env in (None, ENV):
            found[f"{name} of {kind}{', with an environment' if env else ''}"] = functools.partial(
                load_ours, {f"arguments/{name}": value}, env, kind
            )
    for actors in ACTORS:
        found[f"actors {actors}"] = functools.partial(load_ours, {"arguments/actors": actors}, ENV)
    found["a stack of frames"] = functools.partial(load_ours, {"spaces/frame_stack": MANY})
    found["lanes"] = functools.partial(load_ours, {"spaces/num_envs": 10**12})
    found["lists"] = functools.partial(load_ours, {"images": {str(key): [] for key in range(10**6)}})
    wide = {"arguments/policy_kwargs": {"net_arch": [8, 10**7]}}
    names = {f"more.{number}": "q_net.last.linears.0.weight" for number in range(10**5)}
    found["aliases that pay for a network"] = functools.partial(load_ours, wide | {"members/policy/aliases": names})
    return found


# -- files of Stable-Baselines3


@functools.cache
def theirs() -> dict[str, bytes]:
    """Returns the members of a small model of Stable-Baselines3."""
    import stable_baselines3

    file = io.BytesIO()
    kwargs: Any = {"policy_kwargs": {"net_arch": [8]}, "device": "cpu"}
    stable_baselines3.DQN("MlpPolicy", ENV, **kwargs).learn(10).save(file)
    return members(file.getvalue())


def load_theirs(changes: Mapping[str, bytes]) -> None:
    load_zip(archive({**theirs(), **changes}))


def load_zip(raw: bytes) -> None:
    sb_dqn.DQN.load(io.BytesIO(raw), device="cpu")


def archive(parts: Mapping[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as out:
        for name, content in parts.items():
            out.writestr(name, content)
    return file.getvalue()


def deflated(parts: Mapping[str, bytes], name: str, claimed: int | None = None) -> bytes:
    """Returns a zip in which a member has 4 GiB of zeros, deflated to 4 MiB, of which its directory claims `claimed`."""
    compressor, count = zlib.compressobj(9, zlib.DEFLATED, -15), 4095
    piece = compressor.compress(bytes(1 << 20)) + compressor.flush(zlib.Z_FULL_FLUSH)
    raw = bytearray(archive({**parts, name: piece * count + compressor.flush()}))
    with zipfile.ZipFile(io.BytesIO(raw)) as opened:
        header = opened.getinfo(name).header_offset
    entry = raw.rindex(b"PK\x01\x02", 0, raw.rindex(name.encode()))
    for place in (header + 8, entry + 10):
        raw[place : place + 2] = b"\x08\x00"
        raw[place + 14 : place + 18] = struct.pack("<L", count << 20 if claimed is None else claimed)
    return bytes(raw)


def load_settings(**changes: Any) -> None:
    """Loads a file with other settings; a dict changes entries of a setting."""
    data = json.loads(theirs()["data"])
    for key, value in changes.items():
        data[key] = {**data[key], **value} if isinstance(value, dict) else value
    load_theirs({"data": json.dumps(data).encode()})


class Call:
    """Is pickled as a call."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


class Storage(tuple[Any, ...]):
    """Is pickled as torch pickles a storage."""


class Pickler(pickle.Pickler):
    def persistent_id(self, value: Any) -> Any:
        return tuple(value) if isinstance(value, Storage) else None


def storage(count: int) -> Storage:
    return Storage(("storage", torch.FloatStorage, "0", "cpu", count))


def rebuilt(count: int, shape: tuple[int, ...], stride: tuple[int, ...]) -> Call:
    rebuild: Any = torch._utils._rebuild_tensor_v2
    return Call(rebuild, storage(count), 0, shape, stride, False, OrderedDict())


def pickled(value: Any) -> bytes:
    file = io.BytesIO()
    Pickler(file, 2).dump(value)
    return file.getvalue()


def pth(raw: bytes) -> bytes:
    """Returns a file as torch.save writes it, with any pickle and one storage of a number."""
    return archive({"a/data.pkl": raw, "a/byteorder": b"little", "a/version": b"3\n", "a/data/0": bytes(4)})


def legacy() -> bytes:
    """Returns a file as torch.save wrote it before 1.6, with a storage whose size is only claimed."""
    file = io.BytesIO()
    for value in (0x1950A86A20F9469CFC6C, 1001, {"protocol_version": 1001, "little_endian": True, "type_sizes": {}}):
        pickle.dump(value, file, 2)
    rebuild: Any = torch._utils._rebuild_tensor_v2
    kept = Storage(("storage", torch.FloatStorage, "0", "cpu", 3 * MANY, None))
    Pickler(file, 2).dump({"a": Call(rebuild, kept, 0, (1,), (1,), False, OrderedDict())})
    pickle.dump(["0"], file, 2)
    return file.getvalue()


def state() -> dict[str, Any]:
    found: dict[str, Any] = torch.load(io.BytesIO(theirs()["policy.pth"]), weights_only=True)
    return found


def load_strided_for_a_network() -> None:
    """Loads parameters of the right shapes, repeated by their strides, with one that would pay for a large network."""
    data = json.loads(theirs()["data"])
    data["policy_kwargs"] |= {"net_arch": "[8, 100000000]"}
    tensors = {key: rebuilt(1, tuple(value.shape), (0,) * value.dim()) for key, value in state().items()}
    parameters = OrderedDict({**tensors, "q_net.more": rebuilt(1, (MANY, 8), (0, 0))})
    load_theirs({"data": json.dumps(data).encode(), "policy.pth": pth(pickled(parameters))})


def load_bzip2() -> None:
    """Loads a file whose settings are bzip2, which zipfile expands as a whole, whatever the directory claims."""
    raw = bytearray(archive({"data": bytes(320 << 20)}, zipfile.ZIP_BZIP2))
    for place in (22, raw.rindex(b"PK\x01\x02") + 24):
        raw[place : place + 4] = struct.pack("<L", 5000)
    file = io.BytesIO(raw)
    with zipfile.ZipFile(file, "a") as out:
        for name, content in theirs().items():
            if name != "data":
                out.writestr(name, content)
    load_zip(file.getvalue())


def kind(name: str) -> str:
    return f"<class 'gymnasium.spaces.{name}'>"


CUT = "[0. 0. ... 0. 0.]"
BOUNDS = {"low": CUT, "high": CUT}
SETTINGS: dict[str, dict[str, Any]] = {
    "a Box": {"observation_space": {**BOUNDS, "_shape": [3 * MANY]}},
    "a Box of two axes": {"observation_space": {**BOUNDS, "_shape": [30_000, 10_000]}},
    "a dtype of text": {"observation_space": {"dtype": "U500000000"}},
    "a Discrete": {"observation_space": {":type:": kind("discrete.Discrete"), "n": str(10 * MANY), "start": "0"}},
    "a MultiBinary": {"observation_space": {":type:": kind("multi_binary.MultiBinary"), "n": str(10 * MANY)}},
    "a MultiDiscrete": {"observation_space": {":type:": kind("multi_discrete.MultiDiscrete"), "nvec": f"[{MANY}]"}},
    "many actions": {"action_space": {"n": str(10 * MANY)}},
    "lanes": {"n_envs": 10**15},
    "buffer_size": {"buffer_size": 10**12},
    "a wide network": {"policy_kwargs": {"net_arch": "[200000, 200000]"}},
    "a long text": {"policy_kwargs": {"net_arch": "[" + "1," * 10**7 + "]"}},
    "a deep text": {"policy_kwargs": {"net_arch": "[" * 10**6}},
}
PICKLES: dict[str, Callable[[], Any]] = {
    "a bytearray": lambda: {"a": Call(bytearray, 8 << 30)},
    "a tensor without values": lambda: {"a": Call(torch.Tensor, 3 * MANY)},
    "stride 0": lambda: OrderedDict({key: rebuilt(1, (3 * MANY,), (0,)) for key in state()}),
    "a storage larger than its record": lambda: {"a": rebuilt(MANY, (MANY,), (1,))},
    "a tensor larger than its storage": lambda: {"a": rebuilt(1, (MANY,), (1,))},
    "a million sets": lambda: b"\x80\x02](" + b"\x8f" * 10**6 + b"e.",
    "ten million sets": lambda: b"\x80\x02](" + b"\x8f" * 10**7 + b"e.",
}


def their_attacks() -> dict[str, Callable[[], object]]:
    found: dict[str, Callable[[], object]] = {}
    for name, changes in SETTINGS.items():
        found[f"settings with {name}"] = functools.partial(load_settings, **changes)
    found["settings with lists"] = lambda: load_theirs({"data": b'{"a":[' + b"[]," * (10 << 20) + b"[]]}"})
    for member in ("data", "policy.pth", "pytorch_variables.pth", "policy.optimizer.pth"):
        for claimed in (None, 5000):
            said = "" if claimed is None else ", whose directory claims little"
            found[f"deflated {member}{said}"] = functools.partial(load_deflated, member, claimed)
            for inner in ("data.pkl", "data/0") if member != "data" else ():
                found[f"deflated {inner} in {member}{said}"] = functools.partial(
                    load_deflated_inside, member, inner, claimed
                )
        for name, make in PICKLES.items() if member != "data" else ():
            found[f"{name} in {member}"] = functools.partial(load_pickle, member, make)
    found["a legacy file"] = lambda: load_theirs({"policy.pth": legacy()})
    found["stride 0 that pays for a network"] = load_strided_for_a_network
    found["settings compressed by bzip2"] = load_bzip2
    return found


def load_deflated(member: str, claimed: int | None) -> None:
    others = {key: value for key, value in theirs().items() if key != member}
    load_zip(deflated(others, member, claimed))


def load_deflated_inside(member: str, name: str, claimed: int | None) -> None:
    """Loads a file in which a part of the zip in a member is deflated."""
    inner = members(theirs()["policy.pth"])
    whole = f"{next(iter(inner)).partition('/')[0]}/{name}"
    load_theirs({member: deflated({key: value for key, value in inner.items() if key != whole}, whole, claimed)})


def load_pickle(member: str, make: Callable[[], Any]) -> None:
    value = make()
    load_theirs({member: pth(value if isinstance(value, bytes) else pickled(value))})


# -- running them


def attacks() -> dict[str, Callable[[], object]]:
    """Returns all attacks by name."""
    return {f"ours: {name}": run for name, run in our_attacks().items()} | {
        f"theirs: {name}": run for name, run in their_attacks().items()
    }


def used(name: str) -> int:
    """Returns an entry of the kernel's report on this process, in bytes."""
    with open("/proc/self/status", encoding="ascii") as file:
        found = re.search(rf"{name}:\s+(\d+) kB", file.read())
    assert found is not None
    return int(found[1]) << 10


def tried(run: Callable[[], object]) -> dict[str, Any]:
    """Runs an attack with a limit on memory; returns how it ended."""
    resource.setrlimit(resource.RLIMIT_AS, (used("VmSize") + MARGIN, resource.RLIM_INFINITY))
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")  # the peak begins anew
    before, start, kind, message = used("VmRSS"), time.process_time(), "", ""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            run()
            message = " ".join(str(each.message) for each in warned)
        except Exception as error:
            kind, message = type(error).__name__, str(error)
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    peak, seconds = (used("VmHWM") - before) >> 20, round(time.process_time() - start, 2)
    return {"ended": kind, "MiB": peak, "seconds": seconds, "length": len(message), "message": message[:300]}


def main() -> None:
    known = attacks()
    load_ours({}, ENV)
    load_theirs({})
    for name in known:
        if sys.argv[1:] and not name.startswith(tuple(sys.argv[1:])):
            continue
        print(json.dumps({"name": name, **tried(known[name])}), flush=True)


if __name__ == "__main__":
    main()
