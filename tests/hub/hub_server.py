"""A server with the few endpoints of the Hugging Face hub that pushes and pulls use, with repositories in memory."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_valid"
READER = "hf_reader"
"""A token without write access."""
COMMIT = "c" * 40


@dataclass
class HubState:
    """Repositories of the server, and the requests that it got."""

    repos: dict[str, dict[str, bytes]] = field(default_factory=dict)
    uploaded: dict[str, bytes] = field(default_factory=dict)
    """Large files by digest, before the commit that names them."""
    damaged: set[str] = field(default_factory=set)
    """Names of files whose downloads have one wrong byte."""
    cut: set[str] = field(default_factory=set)
    """Names of files whose downloads end early."""
    requests: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    private: list[str] = field(default_factory=list)
    gated: list[str] = field(default_factory=list)
    broken: bool = False
    """Every answer is an error of the server."""


class _Handler(BaseHTTPRequestHandler):
    state: HubState
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # one packet for headers and body: two would wait for each other
    disable_nagle_algorithm = True

    def log_message(self, *_: Any) -> None:
        pass

    def _reply(self, status: int, body: Any = b"", **headers: str) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(raw)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(raw)

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    @property
    def _token(self) -> str:
        return (self.headers.get("Authorization") or "").removeprefix("Bearer ")

    def _dispatch(self) -> None:
        path = unquote(urlsplit(self.path).path)
        body = self._body()
        self.state.requests.append(f"{self.command} {path}")
        if self.state.broken:
            self._reply(503, b"<html>maintenance</html>")
        elif self._token not in ("", TOKEN, READER):
            self._reply(
                401, {"error": "Invalid credentials"}, X_Error_Message="Invalid credentials in Authorization header"
            )
        elif path == "/api/whoami-v2":
            self._reply(200, {"type": "user", "name": "user"})
        elif path == "/api/validate-yaml":
            self._reply(200, {"errors": [], "warnings": []})
        elif path.startswith("/upload/"):  # needs no token: the hub signs such addresses
            self.state.uploaded[path.rpartition("/")[2]] = body
            self._reply(200)
        elif self.command == "POST" and self._token != TOKEN:
            self._reply(403, {"error": "no write access"}, X_Error_Message="no write access")
        elif path == "/api/repos/create":
            self._create(json.loads(body))
        else:
            self._of_repository(path, body)

    do_GET = do_HEAD = do_POST = do_PUT = _dispatch

    def _create(self, wanted: dict[str, Any]) -> None:
        name = f"{wanted['organization']}/{wanted['name']}"
        if name in self.state.repos:
            self._reply(409, {"error": "exists", "url": f"http://{self.headers['Host']}/{name}"})
            return
        self.state.repos[name] = {".gitattributes": b""}
        self.state.private += [name] if wanted.get("visibility") == "private" or wanted.get("private") else []
        self._reply(200, {"url": f"http://{self.headers['Host']}/{name}"})

    def _of_repository(self, path: str, body: bytes) -> None:
        found = re.fullmatch(r"(?:/api/models)?/([^/]+/[^/]+?)(?:\.git)?(?:/(.*))?", path)
        if found is None or found[1] not in self.state.repos:
            self._reply(404, {"error": "Repository not found"}, X_Error_Code="RepoNotFound")
            return
        name, rest = found[1], found[2] or ""
        if name in self.state.gated:
            self._reply(403, {"error": "gated"}, X_Error_Code="GatedRepo")
            return
        files = self.state.repos[name]
        if rest == "preupload/main":
            asked = [entry["path"] for entry in json.loads(body)["files"]]
            modes = [
                {"path": path, "uploadMode": "lfs" if path.endswith(".zip") else "regular", "shouldIgnore": False}
                for path in asked
            ]
            self._reply(200, {"files": modes})
        elif rest == "info/lfs/objects/batch":
            objects = json.loads(body)["objects"]
            where = f"http://{self.headers['Host']}/upload/"
            actions = [{**item, "actions": {"upload": {"href": where + item["oid"]}}} for item in objects]
            self._reply(200, {"transfer": "basic", "objects": actions})
        elif rest == "commit/main":
            self._commit(name, [json.loads(line) for line in body.splitlines()])
        elif rest == "tree/main":
            entries = [
                {"type": "file", "path": path, "size": len(data), "oid": "0" * 40} for path, data in files.items()
            ]
            self._reply(200, entries)
        elif rest in ("", "revision/main", f"revision/{COMMIT}"):
            self._reply(
                200,
                {
                    "id": name,
                    "sha": COMMIT,
                    "siblings": [{"rfilename": path, "size": len(data)} for path, data in files.items()],
                },
            )
        elif rest.startswith("revision/"):
            self._reply(404, {"error": "no such revision"}, X_Error_Code="RevisionNotFound")
        elif rest.startswith(f"resolve/{COMMIT}/"):
            self._send(files, rest.removeprefix(f"resolve/{COMMIT}/"))
        else:
            self._reply(404, {"error": "not found"}, X_Error_Code="EntryNotFound")

    def _send(self, files: dict[str, bytes], path: str) -> None:
        data = files[path]
        headers = {"ETag": f'"{hashlib.sha256(data).hexdigest()}"', "X_Repo_Commit": COMMIT}
        if path in self.state.cut and self.command == "GET":
            self.close_connection = True
            headers["Content_Length"] = str(len(data))
            data = data[:-100]
        if path in self.state.damaged:
            middle = len(data) // 2
            data = data[:middle] + bytes([data[middle] ^ 255]) + data[middle + 1 :]
        self.send_response(200)
        for name, value in {"Content_Length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _commit(self, name: str, lines: list[dict[str, Any]]) -> None:
        files = self.state.repos[name]
        for line in lines:
            value = line["value"]
            if line["key"] == "header":
                self.state.messages.append(value["summary"])
            elif line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.state.uploaded[value["oid"]]
            else:
                assert line["key"] == "deletedFile", line
                del files[value["path"]]
        self._reply(200, {"commitUrl": f"http://{self.headers['Host']}/{name}/commit/{COMMIT}", "commitOid": COMMIT})


@contextmanager
def serve() -> Iterator[tuple[str, HubState]]:
    """Runs the server in a thread; yields its address and state."""
    state = HubState()
    handler = type("Handler", (_Handler,), {"state": state})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
