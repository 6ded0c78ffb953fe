"""Workers of `sb-dqn compare` forked from one process that has imported torch, which takes seconds for each new process.

A `ForkServer` takes the place of `subprocess.Popen` in the job runner; the code that a worker runs is the same.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import IO, Any


def run_worker(arguments: Sequence[str], log: str, stdin: str) -> None:
    """Runs the worker in a forked process; never returns."""
    from sb_dqn.cli.preloaded import main

    code: object = 1
    try:
        os.setsid()
        output, source = os.open(log, os.O_WRONLY | os.O_APPEND), os.open(stdin, os.O_RDONLY)
        for number, file in enumerate((source, output, output)):
            os.dup2(file, number)
        sys.argv = ["sb-dqn", *arguments]
        main()
        code = 0
    except SystemExit as ended:
        code = ended.code or 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


def serve(address: str) -> None:
    """Forks a worker, or returns the exit status of one, for each message of the only client."""
    from sb_dqn.cli.preloaded import preload

    preload()
    with Client(address) as client:
        while (request := client.recv()) is not None:
            if isinstance(request, int):
                found, status = os.waitpid(request, os.WNOHANG)
                client.send(os.waitstatus_to_exitcode(status) if found else None)
                continue
            pid = os.fork()
            if pid == 0:
                run_worker(*request)
            client.send(pid)


class ForkedProcess:
    """What the job runner uses of `subprocess.Popen`."""

    def __init__(self, client: Connection[Any, Any], arguments: Sequence[str], log: str, folder: Path) -> None:
        stdin = folder / f"stdin_{time.monotonic_ns()}"
        os.mkfifo(stdin)
        client.send((arguments, log, str(stdin)))
        self.client, self.pid, self.returncode = client, client.recv(), None
        self.stdin: IO[bytes] = stdin.open("wb")

    def poll(self) -> int | None:
        if self.returncode is None:
            self.client.send(self.pid)
            self.returncode = self.client.recv()
        return self.returncode

    def wait(self, timeout: float = 300.0) -> int:
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            assert time.monotonic() < deadline, "the worker did not end"
            time.sleep(0.01)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


class ForkServer:
    """Context manager that makes `ForkedProcess`es; the server starts with the first one."""

    def __enter__(self) -> ForkServer:
        self.folder = tempfile.TemporaryDirectory()
        self.server: subprocess.Popen[bytes] | None = None
        return self

    def __getitem__(self, _: type) -> ForkServer:
        """Lets annotations say `Popen[bytes]`."""
        return self

    def __call__(self, command: Sequence[str], stdout: IO[bytes], **_: Any) -> ForkedProcess:
        """Runs `python -m sb_dqn.cli.preloaded ARGUMENTS` as a fork."""
        assert command[1:3] == ["-m", "sb_dqn.cli.preloaded"]
        if self.server is None:
            with Listener(str(Path(self.folder.name) / "socket")) as listener:
                call = f"from tests.cli.fork_server import serve; serve({str(listener.address)!r})"
                self.server = subprocess.Popen([sys.executable, "-c", call])
                self.client = listener.accept()
        return ForkedProcess(self.client, command[3:], stdout.name, Path(self.folder.name))

    def __exit__(self, *_: object) -> None:
        if self.server is not None:
            self.client.send(None)
            self.client.close()
            self.server.wait()
        self.folder.cleanup()
