"""A recording stand-in for `torch.cuda`: streams, devices and graphs without a device, with the rules of a capture."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch


class CudaRuntime:
    """Runtime with two devices, which keeps the stream, device and mode of each call.

    Args:
        streams: of each device; more are the same ones again, as from torch's pool of 32.
    """

    def __init__(self, streams: int = 32) -> None:
        self.calls: list[Call] = []
        self.graphs: list[FakeGraph] = []
        self.freed: list[FakeGraph] = []
        self.index = 0
        self.defaults = [FakeStream(self, torch.device("cuda", index), 0) for index in range(2)]
        self.current = list(self.defaults)
        self.pools = [
            [FakeStream(self, torch.device("cuda", index), 1 + n) for n in range(streams)] for index in range(2)
        ]
        self.capture_stream: FakeStream | None = None
        self.generator_captures = False

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        names = ("Stream", "CUDAGraph", "stream", "device", "graph", "current_stream", "current_device")
        for name in names:
            monkeypatch.setattr(torch.cuda, name, getattr(self, name))
        for name in ("synchronize", "empty_cache"):
            monkeypatch.setattr(torch.cuda, name, lambda: None)

    def kernel(self) -> None:
        """Launches a kernel on the current stream."""
        stream = self.current_stream()
        capturing = [graph for graph in self.graphs if graph.capturing]
        mode = capturing[0].mode if capturing else ""
        self.calls.append(Call(stream, stream.device, bool(capturing), mode, gc.isenabled()))

    def forbidden(self) -> None:
        """Reads a value, which a capture does not permit."""
        for graph in self.graphs:
            if graph.capturing:
                graph.invalid = True
                raise RuntimeError("operation not permitted when stream is capturing")

    def current_device(self) -> int:
        return self.index

    def current_stream(self, device: Any = None) -> FakeStream:
        return self.current[self.index]

    def Stream(self, device: torch.device | None = None) -> FakeStream:
        pool = self.pools[self.index if device is None else device.index]
        pool.append(pool.pop(0))
        return pool[-1]

    def CUDAGraph(self) -> FakeGraph:
        return FakeGraph(self)

    @contextmanager
    def stream(self, stream: FakeStream) -> Iterator[None]:
        before, self.current[stream.device.index] = self.current[stream.device.index], stream
        try:
            with self.device(stream.device):
                yield
        finally:
            self.current[stream.device.index] = before

    @contextmanager
    def device(self, device: torch.device) -> Iterator[None]:
        before, self.index = self.index, device.index
        try:
            yield
        finally:
            self.index = before

    @contextmanager
    def graph(self, graph: FakeGraph) -> Iterator[None]:
        """As torch's: on one stream for all captures, which it leaves only if the end of the capture does not raise."""
        self.capture_stream = stream = self.capture_stream or self.Stream()
        before, self.current[stream.device.index] = self.current[stream.device.index], stream
        graph.capture_begin()
        try:
            yield
        finally:
            graph.capture_end()
            self.current[stream.device.index] = before


class Call:
    def __init__(self, stream: FakeStream, device: torch.device, captured: bool, mode: str, collects: bool) -> None:
        self.stream, self.device, self.captured, self.mode, self.collects = stream, device, captured, mode, collects


class FakeStream:
    def __init__(self, runtime: CudaRuntime, device: torch.device, number: int) -> None:
        self.runtime, self.device, self.number = runtime, device, number

    def wait_stream(self, other: FakeStream) -> None:
        assert other.device == self.device


class FakeGraph:
    def __init__(self, runtime: CudaRuntime) -> None:
        self.runtime, self.capturing, self.invalid, self.mode = runtime, False, False, ""
        runtime.graphs.append(self)

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        assert self.runtime.current_stream().number, "a capture must not be on the default stream"
        self.capturing, self.mode = True, capture_error_mode
        self.runtime.generator_captures = True

    def capture_end(self) -> None:
        self.capturing = False
        if self.invalid:
            raise RuntimeError("operation failed due to a previous error during capture")
        self.runtime.generator_captures = False

    def reset(self) -> None:
        self.runtime.freed.append(self)

    def replay(self) -> None: ...
