"""`python -m sglang.launch_server`: serves `/health`, `/v1/embeddings` and `/v1/score` of a small model on the CPU, and
the routes that abort requests and load LoRA adapters.

With `STANDIN_PLAIN=1` a vector is drawn from the token ids, for tests of all but the numbers: it starts at once.

`STANDIN_ORDERS` names a folder. A file in it is an order: `start-*` are read at the start, `answer` with each request,
which it is for; the file is removed when it is taken. `start-bytes` holds a number, and stays: bytes of memory to take.
A hanging request waits until it is aborted; its id is then appended to `aborted`.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import yaml

ORDERS = Path(os.environ["STANDIN_ORDERS"])
PLAIN = os.environ.get("STANDIN_PLAIN") == "1"
HIDDEN = 32
"""Width of the tests' models."""
ROUTES = ("/v1/embeddings", "/v1/score", "/abort_request", "/load_lora_adapter", "/unload_lora_adapter")
VALUES = (
    "model-path", "host", "port", "device", "dtype", "context-length", "max-total-tokens", "tp-size", "max-lora-rank",
    "config",
)  # fmt: skip


def ordered(name: str) -> bool:
    try:
        (ORDERS / name).unlink()
    except FileNotFoundError:
        return False
    return True


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in VALUES:
        parser.add_argument(f"--{name}")
    parser.add_argument("--lora-target-modules", nargs="*")
    parser.add_argument("--enable-lora", action="store_true")
    parser.add_argument("--is-embedding", action="store_true")
    return parser.parse_args()


@cache
def draw(lora: str, *ids: int) -> Any:
    vector = np.random.default_rng([zlib.crc32(lora.encode()), *ids]).standard_normal(HIDDEN).astype("<f4")
    return vector / np.linalg.norm(vector)


class Adapters:
    """The LoRA adapters that were loaded: their folders by name, applied by PEFT."""

    def __init__(self, base: Any) -> None:
        self.base, self.model = base, None
        self.paths: dict[str, str] = {}
        self.lock = threading.Lock()

    def change(self, route: str, body: dict[str, Any]) -> tuple[bool, str]:
        name = body["lora_name"]
        with self.lock, (ORDERS / "loras").open("a") as file:
            file.write(f"{route} {name}\n")
            if route == "/unload_lora_adapter":
                del self.paths[name]
                if self.model is not None and len(self.model.peft_config) > 1:
                    self.model.delete_adapter(name)
                return True, ""
            if name in self.paths:
                return False, f"{name} is already loaded"
            self.paths[name] = body["lora_path"]
            if not PLAIN:
                from peft import PeftModel

                if self.model is None:
                    self.model = PeftModel.from_pretrained(self.base, body["lora_path"], adapter_name=name).eval()
                else:
                    self.model.load_adapter(body["lora_path"], adapter_name=name)
            return True, ""

    @contextmanager
    def chosen(self, name: str | None) -> Iterator[Any]:
        with self.lock:
            if self.model is None:
                yield self.base
            elif name is None:
                with self.model.disable_adapter():
                    yield self.model
            else:
                self.model.set_adapter(name)
                yield self.model


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    model: Any
    key: str
    limit: int
    adapters: Adapters
    taken: Any = None
    hanging: ClassVar[dict[str, threading.Event]] = {}

    def do_GET(self) -> None:
        self.answer(200 if self.path == "/health" else 404, b"")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers["Authorization"] != f"Bearer {self.key}" or self.path not in ROUTES:
            return self.answer(401, b"{}")
        if self.path == "/v1/embeddings":
            return self.embed(body)
        if self.path == "/v1/score":
            return self.answer(200, json.dumps({"token_logprobs": self.answers(body)}).encode())
        if self.path == "/abort_request":
            for request, event in self.hanging.items():
                if body["rid"] in self.hanging and request.startswith(body["rid"]):
                    event.set()
            return self.answer(200, b"")
        success, said = self.adapters.change(self.path, body)
        return self.answer(200 if success else 400, json.dumps({"success": success, "error_message": said}).encode())

    def embed(self, body: dict[str, Any]) -> None:
        lora = body.get("lora_path")
        if any(len(ids) >= self.limit for ids in body["input"]) or (lora and lora not in self.adapters.paths):
            return self.answer(400, b'{"message": "longer than the context length, or a LoRA that was never loaded"}')
        assert len({*body["rid"]}) == len(body["input"])
        if ordered("die"):
            os._exit(9)
        if ordered("hang"):
            self.hang(body["rid"])
            return self.answer(400, b'{"message": "aborted"}')
        if ordered("fail"):
            return self.answer(500, b'{"message": "an internal error"}')
        if ordered("memory"):
            return self.answer(500, b'{"message": "CUDA out of memory"}')
        data = [
            {"index": place, "embedding": base64.b64encode(vector.tobytes()).decode()}
            for place, vector in enumerate(self.vectors(body["input"], lora))
        ]
        if ordered("reorder"):
            data.reverse()
        if ordered("short"):
            data.pop()
        if ordered("nan"):
            data[0]["embedding"] = base64.b64encode(np.full(HIDDEN, np.nan, "<f4").tobytes()).decode()
        if ordered("narrow"):
            data[0]["embedding"] = base64.b64encode(b"\0\0\0\0").decode()
        content = json.dumps({"data": data}).encode()
        return self.answer(200, content[:-9] if ordered("cut") else content)

    def answers(self, body: dict[str, Any]) -> list[list[float]]:
        import torch

        assert body["return_token_logprobs"]
        with torch.inference_mode():
            sequences = [torch.tensor([body["query"] + ids]) for ids in body["items"]]
            logits = [self.model(input_ids=ids).logits[0, -1].double() for ids in sequences]
            return [each.log_softmax(0)[body["label_token_ids"]].tolist() for each in logits]

    def hang(self, requests: list[str]) -> None:
        events = [self.hanging.setdefault(request, threading.Event()) for request in requests]
        (ORDERS / "hangs").write_text("yes")
        for event in events:
            event.wait(600)
        with (ORDERS / "aborted").open("a") as file:
            file.writelines(f"{request}\n" for request in requests)

    def vectors(self, sequences: list[list[int]], lora: str | None) -> list[Any]:
        if PLAIN:
            return [draw(self.adapters.paths[lora] if lora else "", *ids) for ids in sequences]
        import torch

        with torch.inference_mode(), self.adapters.chosen(lora) as model:
            states = [model(input_ids=torch.tensor([ids])).last_hidden_state[0, -1] for ids in sequences]
            return [(state / state.norm()).float().numpy() for state in states]

    def answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *ignored: object) -> None:
        """Log nothing."""


def take_memory(size: int) -> Any:
    """Take memory, and note in `starts` what other engines that were started hold then."""
    with (ORDERS / "starts").open("a+") as file:
        file.seek(0)
        others = [Path(f"/proc/{json.loads(line)['pid']}/statm") for line in file]
        pages = sum(int(each.read_text().split()[1]) for each in others if each.exists())
        note = {"pid": os.getpid(), "others_bytes": pages * os.sysconf("SC_PAGE_SIZE")}
        file.write(json.dumps(note) + "\n")
    return np.ones(size, np.uint8)


def main() -> None:
    given = arguments()
    if ordered("start-fail"):
        sys.exit("RuntimeError: this engine was told to fail")
    if ordered("start-memory"):
        sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB")
    if ordered("start-never"):
        time.sleep(600)
    if ordered("start-fork"):
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    if ordered("start-noise"):
        for _ in range(int(os.environ.get("STANDIN_NOISE_MIB", "1"))):
            os.write(1, b"x" * 2**20 + b"\n")
    if ordered("start-taken"):
        sys.exit("[Errno 98] error while attempting to bind on address: address already in use")
    if ordered("start-slow"):
        print("this engine takes a second", flush=True)
        time.sleep(1)
    if (ORDERS / "start-bytes").exists():
        Handler.taken = take_memory(int((ORDERS / "start-bytes").read_text()))
    if PLAIN:
        Handler.model = json.loads((Path(given.model_path) / "config.json").read_bytes())["hidden_size"]
    else:
        import torch
        from transformers import AutoModel, AutoModelForCausalLM

        torch.set_num_threads(1)
        kind = AutoModel if given.is_embedding else AutoModelForCausalLM
        Handler.model = kind.from_pretrained(given.model_path, dtype=given.dtype).eval()
    Handler.adapters = Adapters(Handler.model)
    Handler.key = yaml.safe_load(Path(given.config).read_text())["api-key"]
    Handler.limit = int(given.context_length)
    ThreadingHTTPServer((given.host, int(given.port)), Handler).serve_forever()


if __name__ == "__main__":
    main()
