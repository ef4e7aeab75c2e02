"""The parts of a key: whose work a subject names. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache

from sie_cluster.messages.work import subject
from sie_cluster.queue.subjects import ANY_PROFILE, SHARED, bucket_of

NO_LORA = "0"
_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Key:
    """One of them; names are written as the tokens of its subject."""

    subject: str
    place: tuple[str, str, str]
    """Queue pool, resource pool and bundle."""
    profile: str
    model: str
    bucket: str

    @property
    def is_shared(self) -> bool:
        """Whether it stands for the keys of many models."""
        return self.model == SHARED

    def is_of(self, lora: str) -> bool:
        """Whether a LoRA adapter is of its bucket."""
        return self.bucket in (bucket_of(lora), bucket_of(lora, own=True))

    def of_profile(self, profile: str) -> bool:
        """Whether workers of a machine profile may answer."""
        return self.profile in (ANY_PROFILE, profile)


@lru_cache(maxsize=4096)
def key_of(work: str) -> Key | None:
    """Read the subject of a key; None where it is none."""
    tokens = work.split(".")
    if len(tokens) != _TOKENS or tokens[:2] != ["sie", "work"]:
        return None
    pool, resource_pool, profile, bundle, model, bucket = tokens[2:]
    return Key(work, (pool, resource_pool, bundle), profile, model, bucket)


@lru_cache(maxsize=4096)
def token(name: str) -> str:
    """Write a name as the token of a subject."""
    return subject(name)


@lru_cache(maxsize=65_536)
def weight(work: str, worker: str) -> bytes:
    """Give the weight of a worker for a key: the heaviest is the first choice, wherever it is computed."""
    return hashlib.blake2b(f"{work}\0{worker}".encode(), digest_size=8).digest()
