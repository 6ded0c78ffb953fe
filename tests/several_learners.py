"""Several learners in forked processes, as `torchrun` would start them."""

from __future__ import annotations

import multiprocessing
import os
import socket
import traceback
from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo  # seconds, and needed by each learner's optimizer: imported before the processes are forked


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_learners(size: int, function: Callable[..., Any], *arguments: Any, seconds: float = 60.0) -> list[Any]:
    """Calls a function in `size` processes; returns their results by rank, the text of an error, or None for a killed one."""
    context, port = multiprocessing.get_context("fork"), free_port()
    started = []
    for rank in range(size):
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(rank, size, port, sender, function, arguments), daemon=True)
        process.start()
        sender.close()
        started.append((process, receiver))
    results = []
    for process, receiver in started:
        try:
            results.append(receiver.recv() if receiver.poll(seconds) else "TimeoutError")
        except EOFError:
            results.append(None)
        process.join(5)
        process.kill()
    return results


def _work(
    rank: int, size: int, port: int, sender: Any, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    torch.set_num_threads(1)
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    try:
        result = function(*arguments)
    except BaseException as error:
        traceback.print_exc()
        result = f"{type(error).__name__}: {error}"
    sender.send(result)
