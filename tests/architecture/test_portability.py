"""The package runs on Windows and macOS: modules, functions and signals of POSIX or Linux stand behind a guard.

A guard is an `if` or a conditional expression that names `sys.platform`, `os.name` or the start methods of processes, a `try`
that catches `ImportError` or `AttributeError`, an early return by such an `if`, or `getattr(module, name, default)`, which is
no attribute in the syntax tree.
SIGTERM is allowed: Windows has it, and ends a process with it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.architecture.package import parsed, sources

POSIX_MODULES = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "termios", "tty", "curses", "readline"}
POSIX_NAMES = {
    "os": {
        "fork", "forkpty", "getpgid", "getppid", "getuid", "geteuid", "kill", "killpg", "mkfifo", "nice", "setpgid", "setsid",
        "sched_getaffinity", "sched_setaffinity", "statvfs", "sync", "sysconf", "uname", "wait", "waitpid", "pipe2", "O_DIRECTORY",
    },
    "signal": {"SIGKILL", "SIGHUP", "SIGALRM", "SIGUSR1", "SIGUSR2", "SIGCHLD", "SIGSTOP", "SIGCONT", "alarm", "pause", "setitimer"},
    "ctypes": {"CDLL"},
}  # fmt: skip
START_METHODS = {"fork", "forkserver"}
SHELLS = re.compile(r"(/bin/)?(ba|z)?sh$")


def is_guard(node: ast.AST) -> bool:
    """Returns True for a statement or an expression inside which the platform is known."""
    if isinstance(node, (ast.If, ast.IfExp)):
        return re.search(r"sys\.platform|os\.name|get_all_start_methods", ast.unparse(node.test)) is not None
    if isinstance(node, ast.Try):
        caught = " ".join(ast.unparse(handler.type) for handler in node.handlers if handler.type is not None)
        return "ImportError" in caught or "AttributeError" in caught
    return False


def leaves(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.body[-1], (ast.Return, ast.Raise)) and is_guard(node)


def unguarded(node: ast.AST, guarded: bool = False) -> Iterator[ast.AST]:
    """Yields the nodes outside all guards, in order."""
    if not guarded:
        yield node
    guarded = guarded or is_guard(node)
    for _, value in ast.iter_fields(node):
        after = guarded
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from unguarded(child, after)
                after = after or leaves(child)


def assumptions(source: str) -> list[str]:
    """Returns what a module takes for granted that Windows or macOS does not have."""
    tree = parsed(source)
    guarded_modules = {
        alias.name
        for node in set(ast.walk(tree)) - set(unguarded(tree))
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    found = []
    for node in unguarded(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name in POSIX_MODULES]
        elif isinstance(node, ast.ImportFrom) and node.module in POSIX_MODULES:
            found.append(str(node.module))
        elif isinstance(node, ast.ImportFrom) and node.module in POSIX_NAMES:
            found += [alias.name for alias in node.names if alias.name in POSIX_NAMES[node.module]]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names = POSIX_NAMES.get(node.value.id, set())
            if node.attr in names or (node.value.id in POSIX_MODULES and node.value.id not in guarded_modules):
                found.append(ast.unparse(node))
        elif isinstance(node, ast.keyword) and node.arg in ("preexec_fn", "pass_fds"):
            found.append(str(node.arg))
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("get_context", "set_start_method")):
            found += [ast.unparse(word) for word in node.args if getattr(word, "value", None) in START_METHODS]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).startswith(("subprocess.", "Popen", "os.system")):
            words = (word.value for word in ast.walk(node) if isinstance(word, ast.Constant))
            found += [word for word in words if isinstance(word, str) and SHELLS.match(word)]
            found += ["shell" for word in node.keywords if word.arg == "shell"]
    return found


def test_no_posix_without_a_guard() -> None:
    assert [f"{name}: {fault}" for name, source in sources().items() for fault in assumptions(source)] == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import fcntl\nfcntl.flock(f, 2)", ["fcntl", "fcntl.flock"]),
        ("if sys.platform != 'win32':\n import fcntl\ndef f():\n fcntl.flock(1, 2)", []),
        ("try:\n import fcntl\nexcept ImportError:\n fcntl = None", []),
        ("from os import fork", ["fork"]),
        ("def f():\n if sys.platform == 'win32':\n  return\n os.fork()", []),
        ("def f():\n if quick:\n  return\n os.fork()", ["os.fork"]),
        ("os.kill(1, signal.SIGKILL)", ["os.kill", "signal.SIGKILL"]),
        ("signal.signal(signal.SIGTERM, stop)", []),
        ("multiprocessing.get_context('fork')", ["'fork'"]),
        ("subprocess.run(['bash', '-c', 'ls'], preexec_fn=f)", ["bash", "preexec_fn"]),
    ],
)
def test_what_the_check_finds(source: str, expected: list[str]) -> None:
    assert assumptions(source) == expected
