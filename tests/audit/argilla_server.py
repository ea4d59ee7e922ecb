# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""A server on this machine that keeps what the SDK of Argilla sends, for tests without a real one."""

from __future__ import annotations

import json
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


TIMES = {"inserted_at": "2026-01-01T00:00:00", "updated_at": "2026-01-01T00:00:00"}
USER = {"id": str(uuid.uuid4()), "username": "anna", "role": "owner", "first_name": "Anna", "last_name": "A", **TIMES}
WORKSPACE = {"id": str(uuid.uuid4()), "name": "default", **TIMES}


class ArgillaServer(ThreadingHTTPServer):
    """Datasets with their fields, questions, metadata properties and records, in memory."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.datasets: dict[str, dict[str, Any]] = {}
        self.parts: dict[tuple[str, str], list[dict[str, Any]]] = {}
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Address of the server."""
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def records(self) -> list[dict[str, Any]]:
        """All records."""
        return [record for (_, part), items in self.parts.items() if part == "records" for record in items]

    def answer(self, row: int, *responses: tuple[Any, str]) -> None:
        """Respond to a record, with pairs of a class and a status, as different people."""
        [record] = [record for record in self.records if record["external_id"] == str(row)]
        record["responses"] = [
            {"id": str(uuid.uuid4()), "user_id": str(uuid.uuid4()), "status": status}
            | {"values": {} if label is None else {"label": {"value": label}}}
            for label, status in responses
        ]
        if any(status == "submitted" for _, status in responses):
            record["status"] = "completed"

    def reply(self, method: str, path: str, body: Any) -> Any:
        """The answer to a request; `None` if there is no such thing."""
        words = urlsplit(path).path.removeprefix("/api/v1/").split("/")
        match method, words:
            case "GET", ["me"]:
                return USER
            case "GET", ["me", "workspaces"]:
                return {"items": [WORKSPACE]}
            case "GET", ["me", "datasets"]:
                return {"items": list(self.datasets.values())}
            case "GET", ["workspaces", _]:
                return WORKSPACE
            case "POST", ["datasets"]:
                dataset = {**body, "id": str(uuid.uuid4()), **TIMES}
                return self.datasets.setdefault(dataset["id"], dataset)
            case "PUT", ["datasets", dataset, "publish"]:
                return self.datasets[dataset] | {"status": "ready"}
            case (("GET" | "PATCH"), ["datasets", dataset]):
                return self.datasets[dataset]
            case "POST", ["datasets", dataset, part]:
                return self._store(dataset, part, body)
            case "PUT", ["datasets", dataset, "records", "bulk"]:
                return {"items": [self._store(dataset, "records", item) for item in body["items"]]}
            case "GET", [*_, "datasets", dataset, part]:
                first = int(parse_qs(urlsplit(path).query).get("offset", ["0"])[0])
                return {"items": self.parts.get((dataset, part), [])[first:]}
        return None

    def _store(self, dataset: str, part: str, item: dict[str, Any]) -> dict[str, Any]:
        item = {**item, "id": str(uuid.uuid4()), "dataset_id": dataset, **TIMES}
        self.parts.setdefault((dataset, part), []).append(item)
        return item


class _Handler(BaseHTTPRequestHandler):
    server: ArgillaServer

    def _reply(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        reply = self.server.reply(self.command, self.path, json.loads(body) if body else None)
        content = json.dumps(reply).encode()
        self.send_response(404 if reply is None else 200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_PATCH = _reply

    def log_message(self, *_: Any) -> None:
        """Print nothing."""
