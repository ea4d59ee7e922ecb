# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Local Hub on 127.0.0.1: the part of the HTTP API that the real client uses to create, write and read a repository.

A test can make single steps fail through `LocalHub.failures`, or over HTTP (`POST /_fail`).
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote


TOKEN = "hf_local_token_for_tests"
USER = "ann"
# Larger files, and all files with these suffixes, are uploaded by LFS.
_LFS_SIZE = 50_000
_LFS_SUFFIXES = (".safetensors", ".png", ".pt", ".bin", ".parquet")
_API = r"/api/(?P<kind>models|datasets)/(?P<repo>[^/]+/[^/]+)"
_REPO = r"/(?P<kind>datasets/)?(?P<repo>[^/]+/[^/]+)"
_ROUTES = [
    ("whoami", "GET", r"/api/whoami-v2"),
    ("create", "POST", r"/api/repos/create"),
    ("validate", "POST", r"/api/validate-yaml"),
    ("preupload", "POST", _API + r"/preupload/[^/]+"),
    ("commit", "POST", _API + r"/commit/[^/]+"),
    ("batch", "POST", _REPO + r"\.git/info/lfs/objects/batch"),
    ("upload", "PUT", r"/_large/(?P<oid>[0-9a-f]{64})"),
    ("verify", "POST", r"/_large/(?P<oid>[0-9a-f]{64})/verify"),
    ("tree", "GET", _API + r"/tree/(?P<path>.+)"),
    ("info", "GET", _API + r"(/revision/[^/]+)?"),
    ("resolve", "GET|HEAD", _REPO + r"/resolve/[^/]+/(?P<path>.+)"),
    ("fail", "POST", r"/_fail"),
]


class LocalHub:
    """
    The server and its repositories.

    Attributes:
        repos: Commits per repository; a commit is a dict from path to content of all files. Names of dataset
            repositories start with `datasets/`, as in their address.
        private: The repositories that were created as private ones.
        messages: (message, written paths) of each commit, per repository.
        failures: Step → status code, `"timeout"` or `"cut"`.
    """

    def __init__(self) -> None:
        self.repos: dict[str, list[dict[str, bytes]]] = {}
        self.messages: dict[str, list[tuple[str, list[str]]]] = {}
        self.private: set[str] = set()
        self.large: dict[str, bytes] = {}
        self.failures: dict[str, int | str] = {}
        self.closing = threading.Event()
        handler = type("Handler", (_Handler,), {"hub": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.closing.set()
        self.server.shutdown()
        self.server.server_close()

    def files(self, repo: str) -> dict[str, bytes]:
        """Return the files of the last commit of a repository."""
        commits = self.repos[repo]
        return commits[-1] if commits else {}

    def sha(self, repo: str) -> str:
        return hashlib.sha1(f"{repo} {len(self.repos[repo])}".encode()).hexdigest()


def _git_sha(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    hub: LocalHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def _route(self) -> None:
        path = unquote(self.path.partition("?")[0])
        for name, methods, pattern in _ROUTES:
            match = re.fullmatch(pattern, path)
            if match and re.fullmatch(methods, self.command):
                return self._serve(name, match.groupdict())
        return self._answer(404, {"error": f"no route for {self.command} {path}"})

    do_GET = do_HEAD = do_POST = do_PUT = _route

    def _serve(self, name: str, parts: dict[str, str]) -> None:
        hub = self.hub
        fault = hub.failures.get(name)
        if fault == "cut":
            self.rfile.read(min(1000, int(self.headers.get("Content-Length", 0))))
            self.close_connection = True
            self.connection.close()
            return None
        body = self._body()
        if fault == "timeout":
            hub.closing.wait(30)
            self.close_connection = True
            return None
        if isinstance(fault, int):
            return self._answer(fault, {"error": f"simulated failure of {name}"})
        if name not in ("resolve", "upload", "validate", "fail", "info", "tree"):
            authorization = self.headers.get("Authorization")
            if name != "verify" and authorization != f"Bearer {TOKEN}":
                return self._answer(401, {"error": "Invalid username or password."})
        if (parts.pop("kind", None) or "").startswith("datasets"):
            parts["repo"] = f"datasets/{parts['repo']}"
        if "repo" in parts and parts["repo"] not in hub.repos:
            return self._answer(404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})
        return getattr(self, f"_{name}")(body, **{key: value for key, value in parts.items() if value})

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            chunks = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(chunks)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _answer(self, status: int, content: Any, headers: dict[str, str] | None = None) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        content_type = "application/octet-stream" if isinstance(content, bytes) else "application/json"
        self.send_response(status)
        for key, value in {"Content-Type": content_type, "Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    # Writing
    def _whoami(self, body: bytes) -> None:
        self._answer(200, {"type": "user", "name": USER, "auth": {"accessToken": {"role": "write"}}})

    def _create(self, body: bytes) -> None:
        request = json.loads(body)
        repo = f"{request.get('organization') or USER}/{request['name']}"
        if request.get("type") == "dataset":
            repo = f"datasets/{repo}"
        exists = repo in self.hub.repos
        if not exists and (request.get("private") or request.get("visibility") == "private"):
            self.hub.private.add(repo)
        self.hub.repos.setdefault(repo, [])
        self.hub.messages.setdefault(repo, [])
        self._answer(409 if exists else 200, {"url": f"{self.hub.url}/{repo}", "name": repo, "id": repo})

    def _validate(self, body: bytes) -> None:
        content = json.loads(body)["content"]
        valid = content.startswith("---\n")
        self._answer(200 if valid else 400, {"errors": [] if valid else [{"message": "no metadata"}], "warnings": []})

    def _preupload(self, body: bytes, repo: str) -> None:
        def mode(file: dict[str, Any]) -> str:
            lfs = file["size"] > _LFS_SIZE or file["path"].endswith(_LFS_SUFFIXES)
            return "lfs" if lfs else "regular"

        files, answer = json.loads(body)["files"], []
        for file in files:
            entry = {"path": file["path"], "uploadMode": mode(file), "shouldIgnore": False}
            content = self.hub.files(repo).get(file["path"])
            if content is not None:
                is_large = entry["uploadMode"] == "lfs"
                entry["oid"] = hashlib.sha256(content).hexdigest() if is_large else _git_sha(content)
            answer.append(entry)
        self._answer(200, {"files": answer})

    def _batch(self, body: bytes, repo: str) -> None:
        objects = []
        for entry in json.loads(body)["objects"]:
            address = f"{self.hub.url}/_large/{entry['oid']}"
            actions = {"upload": {"href": address}, "verify": {"href": f"{address}/verify"}}
            objects.append({**entry, "actions": actions} if entry["oid"] not in self.hub.large else entry)
        self._answer(200, {"transfer": "basic", "objects": objects})

    def _upload(self, body: bytes, oid: str) -> None:
        valid = hashlib.sha256(body).hexdigest() == oid
        if valid:
            self.hub.large[oid] = body
        self._answer(200 if valid else 400, {})

    def _verify(self, body: bytes, oid: str) -> None:
        self._answer(200 if oid in self.hub.large else 404, {})

    def _commit(self, body: bytes, repo: str) -> None:
        hub = self.hub
        files, message, written = dict(hub.files(repo)), "", []
        for line in body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "header":
                message = value["summary"]
                continue
            written.append(value["path"])
            if entry["key"] == "deletedFile":
                del files[value["path"]]
            if entry["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                files[value["path"]] = hub.large[value["oid"]]
        hub.repos[repo].append(files)
        hub.messages[repo].append((message, sorted(written)))
        sha = hub.sha(repo)
        self._answer(200, {"commitUrl": f"{hub.url}/{repo}/commit/{sha}", "commitOid": sha, "success": True})

    # Reading
    def _info(self, body: bytes, repo: str) -> None:
        siblings = [{"rfilename": path} for path in self.hub.files(repo)]
        content = {
            "_id": "1",
            "id": repo.removeprefix("datasets/"),
            "sha": self.hub.sha(repo),
            "private": repo in self.hub.private,
            "siblings": siblings,
            "tags": [],
        }
        self._answer(200, content)

    def _tree(self, body: bytes, repo: str, path: str) -> None:
        folder = path.partition("/")[2]
        start = f"{folder}/" if folder else ""
        all_files = {name: content for name, content in self.hub.files(repo).items() if name.startswith(start)}
        inner = {}
        if "recursive=true" not in self.path.lower():
            inner = {name: start + name.removeprefix(start).split("/")[0] for name in all_files}
            inner = {name: place for name, place in inner.items() if place != name}
        files = [
            {"type": "file", "path": name, "size": len(content), "oid": _git_sha(content)}
            for name, content in all_files.items()
            if name not in inner
        ]
        files += [{"type": "directory", "path": place, "size": 0, "oid": "0" * 40} for place in {*inner.values()}]
        if folder and not files:
            self._answer(404, {"error": "Entry not found"}, {"X-Error-Code": "EntryNotFound"})
        else:
            self._answer(200, files)

    def _resolve(self, body: bytes, repo: str, path: str) -> None:
        content = self.hub.files(repo).get(path)
        commit = {"X-Repo-Commit": self.hub.sha(repo)}
        if content is None:
            self._answer(404, {"error": "Entry not found"}, {"X-Error-Code": "EntryNotFound", **commit})
        else:
            self._answer(200, content, {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', **commit})

    # Simulated failures
    def _fail(self, body: bytes) -> None:
        self.hub.failures = json.loads(body)
        self._answer(200, {})
