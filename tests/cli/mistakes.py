"""Makes mistakes of a first hour and writes what is said: `python -m tests.cli.mistakes` writes `mistakes.txt` anew.

Read the file as somebody who has made each mistake: the message names the value, the place and the remedy.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from click.testing import CliRunner

from sie_core.api import create_app
from sie_core.cli import main as sie
from sie_core.settings import Settings
from tests.api.conftest import TellTaleBackend
from tests.api.serving import serving

FILE = Path(__file__).with_name("mistakes.txt")
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
HEAD = "What mistakes of a first hour are told. `python -m tests.cli.mistakes` writes this file anew.\n\n"
CONFIG = f"sie_id: acme/search\nhf_id: {MINILM}\n"
PROFILE = "profiles:\n  default:\n    adapter_options:\n      runtime:\n        {}\n"
CONFIGS = {
    "a misspelt field": f"{CONFIG}max_sequence_lenght: 12\n",
    "a misspelt option": CONFIG + PROFILE.format("poolling: cls"),
    "a broken list": "sie_id: acme/search\nhf_id: [x\n",
    "an unquoted `no`": CONFIG + PROFILE.format("pooling: no"),
}
LONG = "word " * 999
FOLDERS = {
    "pickled weights": {"config.json": '{"model_type": "bert"}', "pytorch_model.bin": "x"},
    "weights and no config.json": {"model.safetensors": "x"},
    "a GGUF file": {"model.gguf": "GGUF"},
}
SURROUNDINGS = ("SIE_HF_FALLBACK", "SIE_PRELOAD_MODELS")
COMMANDS = (
    ("modls", {}),
    ("serve --prot 80", {}),
    ("serve --port eighty", {}),
    ("serve acme/serch", {"SIE_HF_FALLBACK": "false"}),
    ("serve ./nowhere", {}),
    ("serve gguf", {}),
    ("serve --port BUSY", {"SIE_PRELOAD_MODELS": ""}),
    ("models", {"SIE_MAX_QUEUED_COST": "2G"}),
    ("models", {"SIE_MEMORY_LIMIT_BYTES": "2Q"}),
    ("models", {"SIE_DEVICE": "gpu"}),
    ("models", {"SIE_DEFAULT_COMPUTE_PRECISION": "half"}),
    ("models show all-minilm-l6-v2", {}),
    ("models status --server http://127.0.0.1:9", {}),
    ("models status --server 127.0.0.1:9", {}),
)
REQUESTS: tuple[tuple[str, str, Any], ...] = (
    ("POST", "/v1/embedings", {"model": MINILM, "input": "a"}),
    ("GET", "/v1/embeddings", None),
    ("POST", "/v1/embeddings", {"model": "sentence-transformers/all-MiniLM-L6", "input": "a"}),
    ("POST", "/v1/embeddings", {"model": "acme/list", "input": "a"}),
    ("POST", "/v1/embeddings", {"model": "acme/lists", "input": "a"}),
    ("POST", "/v1/embeddings", {"model": "acme/option", "input": "a"}),
    ("POST", "/v1/embeddings", {"model": MINILM, "inputs": "a"}),
    ("POST", "/v1/embeddings", {"model": MINILM, "input": []}),
    ("POST", "/v1/embeddings", {"model": MINILM, "input": "a", "dimensions": 100}),
    ("POST", "/v1/embeddings", '{"model": "x", "input": "a",}'),
    ("POST", f"/v1/encode/{MINILM}", {"items": ["a text"]}),
    ("POST", f"/v1/encode/{MINILM}", {"items": [{"text": "a"}], "params": {"output_dtype": "float8"}}),
    ("POST", f"/v1/encode/{MINILM}", {"items": [{"text": "a"}], "params": {"options": {"poolling": "cls"}}}),
    ("POST", f"/v1/encode/{MINILM}", {"items": [{"text": "a"}], "params": {"options": {"lora": "legal"}}}),
    ("POST", f"/v1/encode/{MINILM}", {"items": [{"images": [{"data": "QUJD"}]}]}),
    ("POST", f"/v1/extract/{MINILM}", {"items": [{"text": "a"}], "params": {"labels": ["person"]}}),
    ("POST", "/rerank", {"model": MINILM, "query": "a", "documents": ["b"], "top_n": 0}),
    ("POST", "/embed", {"model": MINILM, "inputs": LONG, "truncate": False}),
)
CALLS: tuple[tuple[str, dict[str, str]], ...] = (
    ("without a token", {}),
    ("with another token", {"Authorization": "Bearer secrte"}),
    ("with Content-Type: image/png", {"Authorization": "Bearer secret", "Content-Type": "image/png"}),
)


def said() -> str:
    """Make every mistake, and return what is said."""
    with tempfile.TemporaryDirectory() as folder, standing_in(Path(folder)) as port:
        parts = [
            *of_commands(port),
            *of_configs(Path(folder)),
            *of_folders(Path(folder)),
            *asyncio.run(of_requests(Path(folder))),
        ]
    return HEAD + "\n".join(f"{number}. {part}" for number, part in enumerate(parts, 1))


@contextmanager
def standing_in(folder: Path) -> Iterator[int]:
    """Go into an empty folder, without settings, and give a port that another program listens on."""
    before, variables = Path.cwd(), dict(os.environ)
    for name in [each for each in os.environ if each.startswith(("SIE_", "HF_"))]:
        del os.environ[name]
    os.environ |= {"HF_HOME": str(folder / "home"), "SIE_PLUGINS_BLOCKED": "fake", "SIE_HF_FALLBACK": "false"}
    os.chdir(folder)
    make_folder(folder / "gguf", FOLDERS["a GGUF file"])
    try:
        with socket.create_server(("127.0.0.1", 0)) as busy:
            yield busy.getsockname()[1]
    finally:
        os.chdir(before)
        os.environ.clear()
        os.environ |= variables


def of_commands(port: int) -> Iterator[str]:
    for typed, variables in COMMANDS:
        shown = "".join(f"{name}={value} " for name, value in variables.items() if name not in SURROUNDINGS)
        result = CliRunner().invoke(sie, typed.replace("BUSY", str(port)).split(), prog_name="sie", env=variables)
        assert result.exit_code, typed
        yield f"$ {shown}sie {typed}\n{clean(result.output, port)}\n"


def of_configs(folder: Path) -> Iterator[str]:
    (folder / "models").mkdir()
    for what, text in CONFIGS.items():
        (folder / "models/search.yaml").write_text(text)
        result = CliRunner().invoke(sie, ["models"], prog_name="sie")
        yield f"models/search.yaml with {what}\n{clean(result.stderr, 0)}\n"
    (folder / "models/search.yaml").unlink()


def of_folders(folder: Path) -> Iterator[str]:
    for what, files in FOLDERS.items():
        shutil.rmtree(folder / "models")
        make_folder(folder / "models/search", files)
        result = CliRunner().invoke(sie, ["models"], prog_name="sie")
        yield f"models/search/ with {what}\n{clean(result.stderr, 0)}\n"
    shutil.rmtree(folder / "models")


def make_folder(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text)


async def of_requests(folder: Path) -> list[str]:
    (folder / "models").mkdir()
    for name, what in {"list": "a broken list", "option": "a misspelt option"}.items():
        (folder / f"models/{name}.yaml").write_text(CONFIGS[what].replace("acme/search", f"acme/{name}"))
    settings = Settings(models_dir=folder / "models", preload_models=(MINILM,), hf_fallback=False)
    async with serving(settings, "engine") as client:
        told = [await of_request(client, *each) for each in REQUESTS]
    app = create_app(TellTaleBackend(), Settings(auth_mode="token", auth_token="secret"))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://sie") as client:
        body = '{"model": "m", "input": "a"}'
        return told + [await of_request(client, "POST", "/v1/embeddings", body, *each) for each in CALLS]


async def of_request(
    client: httpx.AsyncClient, method: str, path: str, body: Any, how: str = "", headers: dict[str, str] | None = None
) -> str:
    content = None if body is None else body if isinstance(body, str) else json.dumps(body)
    sent = {"Content-Type": "application/json"} | (headers or {}) if content else {}
    reply = await client.request(method, path, headers=sent, content=content)
    shown = how or ("" if body is None else str(body).replace(LONG, "word word …"))
    return f"{method} {path} {shown}\n{reply.status_code} {message_of(reply)}\n"


def message_of(reply: httpx.Response) -> str:
    error = reply.json()["error"]
    return error["message"] if isinstance(error, dict) else error


def clean(text: str, port: int) -> str:
    """Leave out what differs from machine to machine."""
    lines = [line for line in text.splitlines() if line and not line.startswith(("Usage:", "Try ", "20"))]
    return (
        re.sub(r"/\S*/(models/|tmp\w+/)", r"…/\1", "\n".join(lines)).replace(str(port), "BUSY")
        if port
        else "\n".join(lines)
    )


if __name__ == "__main__":
    FILE.write_text(said())
