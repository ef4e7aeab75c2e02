"""`python -m sglang.launch_server`: serves `/health`, `/v1/embeddings` and `/v1/score` of a small model on the CPU.

With `STANDIN_PLAIN=1` a vector is drawn from the token ids, for tests of all but the numbers: it starts at once.

`STANDIN_ORDERS` names a folder. A file in it is an order: `start-*` are read at the start, `answer` with each request,
which it is for; the file is removed when it is taken.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import yaml

ORDERS = Path(os.environ["STANDIN_ORDERS"])
PLAIN = os.environ.get("STANDIN_PLAIN") == "1"
ROUTES = ("/v1/embeddings", "/v1/score")
VALUES = ("model-path", "host", "port", "device", "dtype", "context-length", "max-total-tokens", "tp-size", "config")


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
    parser.add_argument("--is-embedding", action="store_true")
    return parser.parse_args()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model: Any
    key: str
    limit: int

    def do_GET(self) -> None:
        self.answer(200 if self.path == "/health" else 404, b"")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers["Authorization"] != f"Bearer {self.key}" or self.path not in ROUTES:
            return self.answer(401, b"{}")
        if self.path == "/v1/score":
            return self.answer(200, json.dumps({"token_logprobs": self.answers(body)}).encode())
        if any(len(ids) >= self.limit for ids in body["input"]):
            return self.answer(400, b'{"message": "longer than the context length"}')
        if ordered("die"):
            os._exit(9)
        if ordered("hang"):
            time.sleep(600)
        if ordered("fail"):
            return self.answer(500, b'{"message": "an internal error"}')
        if ordered("memory"):
            return self.answer(500, b'{"message": "CUDA out of memory"}')
        data = [
            {"index": place, "embedding": base64.b64encode(vector.tobytes()).decode()}
            for place, vector in enumerate(self.vectors(body["input"]))
        ]
        if ordered("reorder"):
            data.reverse()
        if ordered("short"):
            data.pop()
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

    def vectors(self, sequences: list[list[int]]) -> list[Any]:
        if PLAIN:
            drawn = [np.random.default_rng(ids).standard_normal(self.model).astype("<f4") for ids in sequences]
            return [vector / np.linalg.norm(vector) for vector in drawn]
        import torch

        with torch.inference_mode():
            states = [self.model(input_ids=torch.tensor([ids])).last_hidden_state[0, -1] for ids in sequences]
            return [(state / state.norm()).float().numpy() for state in states]

    def answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *ignored: object) -> None:
        """Log nothing."""


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
        os.write(1, b"x" * 2**20 + b"\n")
    if PLAIN:
        Handler.model = json.loads((Path(given.model_path) / "config.json").read_bytes())["hidden_size"]
    else:
        import torch
        from transformers import AutoModel, AutoModelForCausalLM

        torch.set_num_threads(1)
        kind = AutoModel if given.is_embedding else AutoModelForCausalLM
        Handler.model = kind.from_pretrained(given.model_path, dtype=given.dtype).eval()
    Handler.key = yaml.safe_load(Path(given.config).read_text())["api-key"]
    Handler.limit = int(given.context_length)
    ThreadingHTTPServer((given.host, int(given.port)), Handler).serve_forever()


if __name__ == "__main__":
    main()
