"""Every `SIE_*` variable of the core, typed, with its default. Nothing else of the core reads the environment.

Variables of plugins are declared and read as `sie_core.contracts.PluginSetting`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import ByteSize, Field, SecretStr, TypeAdapter, ValidationError, field_validator
from pydantic_settings import BaseSettings, EnvSettingsSource, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict
from rapidfuzz import process

PREFIX = "SIE_"
ECOSYSTEM = frozenset({"SIE_BASE_URL", "SIE_API_KEY"})
"""Variables of the client, which a server's environment may hold."""

Names = Annotated[tuple[str, ...], NoDecode]
Secrets = Annotated[tuple[SecretStr, ...], NoDecode]

_PROFILE = r"^[A-Za-z0-9][A-Za-z0-9_\-]*$"
_INTEGER = "it is no integer; write digits alone, as `64`"
GONE: Final[Mapping[str, str]] = {
    "SIE_BATCHER_COALESCE_MS": "a sidecar sends slices on at once",
    "SIE_BATCH_POLICY": "SIE_SCHEDULER names what decides whose work runs next",
    "SIE_GATEWAY_KUBERNETES": "name the headless service of the workers in SIE_GATEWAY_WORKERS",
    "SIE_MAX_BATCH_WAIT_MS": "no batch waits to fill while its device is idle",
    "SIE_PRIORITY_STREAM": "long batches are preempted between their layers where the runner can",
    "SIE_RUST_PIPELINE_DEPTH": "set SIE_PIPELINE_DEPTH",
}
"""Variables of earlier and other releases that nothing reads, with what to know instead."""
_NOT_OF_THE_BROKER = frozenset({"nats_url", "nats_config_trusted_producers"})
"""Fields named `nats_…` that are no options of a queue transport."""


_BYTES: Final = TypeAdapter(ByteSize)

Group = Literal["basic", "advanced", "cluster", "config service"]
"""Who reads about a setting: whoever runs one server, the same one on a day of need, or the operator of a cluster."""


def _setting(group: Group, default: Any, description: str, **bounds: Any) -> Any:
    """Declare a setting; its description is whole sentences, the last of which says what unset means."""
    return Field(default, description=description, json_schema_extra={"group": group}, **bounds)


_basic, _advanced = partial(_setting, "basic"), partial(_setting, "advanced")
_cluster, _config_service = partial(_setting, "cluster"), partial(_setting, "config service")


class SettingsError(Exception):
    """A variable has a value that is not allowed; the message names all three."""


class Settings(BaseSettings):
    """The settings in force: arguments over environment over defaults."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid", env_ignore_empty=True)

    # What whoever runs one server should know.
    http_host: str = _basic("127.0.0.1", "The server listens on this address.")
    http_port: int = _basic(8080, "The server listens on this port; with `0` it takes a free one.", ge=0, le=65535)
    auth_mode: Literal["none", "token", "static"] = _basic(
        "none",
        "Anybody may call the server with `none`; with `token`, only who sends a bearer token of `SIE_AUTH_TOKEN` or "
        "`SIE_AUTH_TOKENS`. `static` is another name of `token`.",
    )
    auth_token: SecretStr | None = _basic(
        None, "Clients may send this token. At a config service it reads configs, but not the export."
    )
    auth_tokens: Secrets = _basic((), "Clients may send any of these comma-separated tokens, beside `SIE_AUTH_TOKEN`.")
    cors_origins: Names = _basic(
        (),
        "Web pages of these comma-separated origins may call the server, as `https://app.example.com`; `*` lets any. "
        "Unset, only its own pages may.",
    )
    allowed_hosts: Names = _basic(
        (),
        "Clients may call the server by these comma-separated names, beside addresses, loopback names and "
        "`SIE_HTTP_HOST`; `*.example.com` stands for all below one, `*` for any. Unset, a server that listens on more "
        "than loopback answers to any name.",
    )
    trusted_proxies: Names = _basic(
        (),
        "Proxies in these comma-separated networks, as `10.0.0.0/8`, name the client by X-Forwarded-For. Unset, the "
        "client is the address that connects.",
    )
    max_request_body_bytes: int = _basic(34 * 2**20, "A request body larger than this gets 413.", ge=1)
    max_concurrent_requests: int = _basic(
        512, "The server admits this many requests at once; further ones get 503 QUEUE_FULL.", ge=1
    )
    drain_timeout_s: float = _basic(25.0, "Requests in flight get this many seconds to finish after SIGTERM.", ge=0)
    device: str = _basic(
        "auto",
        "Models run on this device: `cuda`, `cuda:0`, `mps` or `cpu`. With `auto`, it is an accelerator where there is "
        "one.",
        pattern=r"^(auto|[a-z]+(:\d+)?)$",
    )
    models_dir: Path | str = _basic(
        Path("models"),
        "Model configs are read from this folder, beside those that plugins ship: a local path, or "
        "`s3://bucket/prefix`, `gs://…`, `az://…`.",
    )
    model_filter: Names = _basic(
        (), "The server serves only the models of these comma-separated ids. Unset, it serves all."
    )
    default_model: str = _basic(
        "sentence-transformers/all-MiniLM-L6-v2",
        "This model answers on routes whose requests name none, which are those of TEI.",
    )
    serve_any_model: bool | None = _basic(
        None,
        "Clients may have the server fetch any model of the Hugging Face Hub by naming it. Unset, they may where "
        "`SIE_HTTP_HOST` is on loopback.",
    )
    preload_models: Names = _basic((), "The models of these comma-separated ids are loaded before the server is ready.")
    pinned_models: Names = _basic((), "The models of these comma-separated ids are never unloaded to make room.")
    idle_evict_s: float | None = _basic(
        None,
        "A model, or a LoRA adapter, is unloaded after this many seconds without a request. Unset, it stays until room "
        "is needed.",
        gt=0,
    )
    local_cache: Path | None = _basic(
        None, "Weights are kept in this folder, in the Hub's layout. Unset, it is the `hub` folder of `HF_HOME`."
    )
    disk_cache_max_bytes: int | None = _basic(
        None, "The folder of weights holds at most this many bytes. Unset, only the disk bounds it.", ge=1
    )
    hf_fallback: bool = _basic(
        True, "Weights that no other tier has are fetched from the Hugging Face Hub; with `false`, never."
    )
    memory_limit_bytes: int | None = _basic(
        None,
        "The device counts as no larger than this many bytes; on a CPU they bound the process. Unset, all of its "
        "memory counts.",
        ge=1,
    )
    memory_pressure_threshold_percent: float = _basic(
        85.0,
        "The longest unused models are unloaded while more than this percentage of the device's memory is in use.",
        gt=0,
        le=100,
    )
    max_batch_cost: int = _basic(
        16384, "A batch holds at most this many cost units; a model's config may set its own limit.", ge=1
    )
    preprocessor_workers: int | None = _basic(
        None,
        "This many threads tokenise texts, and as many finish outputs. Unset, it is the CPU quota, but at most 4.",
        ge=1,
    )
    default_compute_precision: Literal["float16", "bfloat16", "float32"] = _basic(
        "float16",
        "Models whose config names no precision compute in `float16`, `bfloat16` or `float32`. A device that is slow "
        "in it takes the nearest that is fast there and within the family's tolerance, and the log says which.",
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = _basic(
        "INFO", "The log holds messages from this level on: `DEBUG`, `INFO`, `WARNING` or `ERROR`."
    )
    log_json: bool = _basic(False, "Each line of the log is a JSON object.")
    access_log: Literal["off", "slow", "all"] = _basic(
        "off",
        "Answered requests have a line in the log: `off`, none; `slow`, those that took 1 s or longer; `all`, each. "
        "Probes and other look-ups have theirs at debug level.",
    )

    # Of one server too, which most leave as they are.
    auth_exempt_operational: bool = _advanced(
        False,
        "`/health`, `/tei/{model}/health`, `/metrics` and WebSockets answer without a token, as `/healthz`, `/livez`, "
        "`/readyz` and `/ping` always do.",
    )
    http_keep_alive_s: int = _advanced(
        120,
        "The server closes a connection that was idle for this many seconds. It should be more than its clients and "
        "the load balancer before it wait (Go's client 90, most balancers 60, Google's 600).",
        ge=1,
    )
    model_wait_s: float = _advanced(
        30.0,
        "OpenAI-, Cohere- and TEI-shaped routes wait this many seconds for a model to load before they answer 503.",
        ge=0,
    )
    native_load_wait_s: float = _advanced(
        2.0,
        "Native routes wait this many seconds for a load that is predicted to end by then; else they answer 503.",
        ge=0,
    )
    max_reply_bytes: int = _advanced(
        8 * 34 * 2**20,
        "A request whose reply would be larger than this gets 413. The default lets through the most items a request "
        "may have, each of 4,096 dimensions, as float32 in msgpack.",
        ge=1,
    )
    max_item_text_bytes: int = _advanced(
        2 * 2**20, "A request with an item whose text and metadata are larger than this gets 400.", ge=1
    )
    models_poll_s: float = _advanced(
        15.0,
        "The server looks at a models folder in an object store every so many seconds; at a local one, every second.",
        gt=0,
    )
    weight_folders: Names = _advanced(
        (), "Each of these comma-separated folders of weights is served under its own name, beside `SIE_MODELS_DIR`."
    )
    baked_weights: Path | None = _advanced(
        None, "An image brings weights in this folder, in the Hub's layout. It is asked first and never written to."
    )
    cluster_cache: str | None = _advanced(
        None,
        "Machines share this weight store, which is asked before the Hub: `s3://bucket/prefix`, `gs://…`, `az://…`.",
        pattern=r"^[a-z][a-z0-9+.\-]*://.",
    )
    cluster_cache_fill: bool = _advanced(False, "Weights that the Hub gave are stored in `SIE_CLUSTER_CACHE`.")
    disk_cache_enabled: bool = _advanced(
        True,
        "The folder of weights loses its longest unused ones to stay within its limits; with `false`, it only grows.",
    )
    disk_pressure_threshold_percent: float = _advanced(
        85.0,
        "The longest unused weights are removed while more than this percentage of their disk is in use.",
        gt=0,
        le=100,
    )
    max_batch_requests: int = _advanced(64, "A batch holds items of at most this many requests.", ge=1)
    max_batch_ms: float | None = _advanced(
        None,
        "A batch is predicted to run for at most this many milliseconds, or six times as long as an empty one if that "
        "is more. Unset, it is 250 on a CPU and without limit on a GPU.",
        gt=0,
    )
    max_queued_cost: int | None = _advanced(
        None,
        "At most this many cost units are queued; where others fill the queue, a client still has an equal share. "
        "Unset, it is 64 batches.",
        ge=1,
    )
    image_workers: int | None = _advanced(
        None, "This many threads prepare requests with images. Unset, it is the CPU quota, but at most 4.", ge=1
    )
    lora_by_id: bool = _advanced(
        True,
        "Requests may name a LoRA adapter by a repository's id, which is then fetched; with `false`, only those that "
        "the model's config declares.",
    )
    max_loras_per_model: int = _advanced(
        10, "A model keeps this many LoRA adapters loaded; beyond it the longest unused is unloaded.", ge=1
    )
    attention_backend: str = _advanced(
        "auto",
        "Attention is computed by `sdpa`, by `eager`, or by what an installed runner names, such as "
        "`flash_attention_2`; with `auto`, the runner chooses. One that is not installed stops the start.",
        pattern=r"^[a-z][a-z0-9_]*$",
    )
    runner: str = _advanced(
        "auto",
        "One of the runners that prove themselves serves a model. With `auto`, it is the fastest in a race at the "
        "model's first load; with `priority`, there is no race; with the name of one, such as `packed`, that one is "
        "tried first.",
    )
    scheduler: str = _advanced("fair", "The scheduler that is registered under this name decides whose work runs next.")
    memory_manager: str = _advanced(
        "lru", "The memory manager that is registered under this name decides which model is unloaded."
    )
    gpu_type: str | None = _advanced(
        None,
        "The GPU of this machine has this name, such as `l4` or `a100-80gb`. Unset, it is detected.",
        pattern=_PROFILE,
    )
    instrumentation: bool = _advanced(
        False, "`/metrics` shows the units, the wait and the prediction error of batches too."
    )
    plugins: Names = _advanced((), "Only these comma-separated entry points are loaded. Unset, all are.")
    plugins_blocked: Names = _advanced((), "These comma-separated entry points are not loaded.")
    strict_plugins: bool = _advanced(False, "A broken plugin stops the start; with `false`, it is left out.")
    trace_hooks: bool = _advanced(False, "The log has a line for each call of a plugin's hook.")

    # Of gateways and workers, and of their way to the broker.
    nats_url: SecretStr | None = _cluster(
        None,
        "The broker at this address carries the queue, results, heartbeats and broadcasts: `nats://host:4222`, several "
        "by commas.",
    )
    nats_user: str | None = _cluster(None, "The broker knows this program as this user; one in the URL wins.")
    nats_password: SecretStr | None = _cluster(None, "The user of `SIE_NATS_USER` has this password.")
    nats_creds: Path | None = _cluster(None, "This file holds credentials for the broker, as `nsc` writes it.")
    nats_inbox_prefix: str | None = _cluster(
        None,
        "This program's inboxes begin with this, as `_INBOX.gateway.one`, where it logs in by credentials or a "
        "certificate and the broker permits those alone. Unset, they begin with `_INBOX.` and the user.",
    )
    nats_tls_ca: Path | None = _cluster(None, "This PEM file holds the authority that signed the broker's certificate.")
    nats_tls_cert: Path | None = _cluster(None, "This PEM file holds the certificate that the broker is shown.")
    nats_tls_key: Path | None = _cluster(None, "This PEM file holds the key of `SIE_NATS_TLS_CERT`.")
    nats_storage: Literal["file", "memory"] = _cluster(
        "file", "The broker keeps queues and stores in a `file` or in `memory`."
    )
    nats_replicas: Literal[1, 3, 5] = _cluster(
        1, "A cluster of brokers keeps `1`, `3` or `5` copies of queues and stores."
    )
    ack_wait_s: float = _cluster(
        5.0, "Work of a worker that was not heard of for this many seconds is given to another.", ge=1
    )
    max_deliver: int = _cluster(20, "One piece of work is given to workers at most this many times.", ge=1)
    payload_store_url: str | None = _cluster(
        None,
        "Gateways and workers share this store for payloads larger than a message: a folder, or `s3://bucket/prefix`, "
        "`gs://…`, `az://…`. Unset, they travel in frames.",
        min_length=1,
    )
    payload_frames: bool = _cluster(
        True, "Payloads larger than a message may travel in frames, where there is no store or it does not answer."
    )
    pool: str = _cluster(
        "_default", "A gateway fills this queue pool, and a worker pulls from it.", pattern=r"^[A-Za-z0-9_\-]+$"
    )
    bundle: str = _cluster("default", "A worker serves the models of this bundle.", pattern=r"^[A-Za-z0-9_\-]+$")
    config_service_url: str | None = _cluster(
        None,
        "Gateways and workers take their model configs from the config service at this URL: `http://host:8080`. Unset, "
        "each takes those of its plugins and of `SIE_MODELS_DIR`, and a worker those that its sidecar brings.",
        pattern=r"^https?://[^\s/?#@]+(/[^\s?#@]*)?$",
    )
    config_read_token: SecretStr | None = _cluster(
        None,
        "Gateways and workers send this token to the config service, of which it may read everything, export included.",
    )
    nats_config_trusted_producers: Names = _cluster(
        ("sie-config",),
        "Broadcast changes are believed of config services with these comma-separated names; one also stands for those "
        "that begin with it and a hyphen.",
    )
    worker_config_poll_interval_ms: int = _cluster(
        30_000,
        "A gateway or worker looks at the config service's epoch every so many milliseconds, with jitter.",
        ge=100,
    )
    worker_config_full_export_interval_ms: int = _cluster(
        300_000,
        "A gateway or worker fetches the export every so many milliseconds although the epoch is the same; with `0`, "
        "only at its start.",
        ge=0,
    )
    health_publish_interval_ms: int = _cluster(
        5000, "A worker or gateway sends a heartbeat every so many milliseconds.", ge=100
    )
    gateway_timeout_s: float = _cluster(
        120.0, "A gateway waits this many seconds for an answer before it says 504.", gt=0, le=900
    )
    gateway_max_concurrent_requests: int = _cluster(
        4096, "A gateway admits this many requests at once; further ones get 503 QUEUE_FULL.", ge=1
    )
    gateway_health_mode: Literal["nats", "ws"] = _cluster(
        "nats",
        "`/health` and `/ws/cluster-status` of a gateway show of workers what they say in heartbeats with `nats`, and "
        "what each says when it is dialled with `ws`, which is for diagnosis. Requests go by heartbeats in both.",
    )
    gateway_workers: Names = _cluster(
        (),
        "A gateway dials the workers at these comma-separated URLs of their probes with `ws`, as "
        "`http://workers:8081`. Each address of a name is a worker, as of a headless service.",
    )
    gateway_configured_gpus: Names = _cluster(
        (),
        "Machines of these comma-separated profiles can be added, as `l4, a100-80gb`: clients may ask for them, and "
        "for those of living workers.",
    )
    pool_lease_s: float = _cluster(
        1200.0,
        "A resource pool ends when nobody has renewed it for this many seconds; all gateways need the same value.",
        ge=1,
    )
    pool_admission_enabled: bool = _cluster(
        True,
        "A worker that was given to a resource pool serves that pool's work alone; with `false`, it serves what "
        "belongs to no pool.",
    )
    gateway_url: str | None = _cluster(
        None,
        "A sidecar that may not read the broker's store asks the gateway at this URL for the resource pool of its "
        "worker.",
    )
    machine_profile: str | None = _cluster(
        None,
        "Clients ask for this worker or server by this machine profile, such as `l4-spot`, in `gpu`. Unset, a worker "
        "takes what asks for none, and a server goes by `SIE_GPU_TYPE`.",
        pattern=_PROFILE,
    )
    gpu_count: int | None = _cluster(
        None,
        "A worker says that it has this many GPUs. Unset, it says 1 where it has a GPU type or machine profile.",
        ge=0,
    )
    worker_id: str | None = _cluster(
        None,
        "A worker has this name. Unset, it is made of the host's name and the process's number.",
        pattern=r"^[A-Za-z0-9._\-]+$",
    )
    worker_metrics_port: int = _cluster(
        9095, "A sidecar's probes and metrics answer on this port; with `0`, it takes a free one.", ge=0, le=65535
    )
    ipc_socket_path: Path = _cluster(
        Path("/tmp/sie-ipc.sock"), "A sidecar and its adapter process talk by this Unix socket."
    )
    ipc_pool_size: int | None = _cluster(
        None,
        "A sidecar has this many connections to its adapter process. Unset, it has `SIE_MAX_CONCURRENT_BATCHES`.",
        ge=1,
    )
    max_concurrent_batches: int = _cluster(
        4, "A worker holds slices of one model that are worth at most this many batches.", ge=1
    )
    batcher_max_batch_requests: int = _cluster(12, "A sidecar counts this many slices as a batch.", ge=1)
    pipeline_depth: int = _cluster(
        2, "A sidecar sends its adapter process this many batches ahead of the one that runs.", ge=1
    )
    adaptive_min_quantum_ms: int = _cluster(
        2, "A busy sidecar waits at least this many milliseconds between two requests for more slices.", ge=0
    )
    adaptive_max_quantum_ms: int = _cluster(
        15,
        "A busy sidecar waits at most this many milliseconds between two requests for more slices. The wait grows "
        "while `SIE_ADAPTIVE_TARGET_P50_MS` is met, and shrinks while it is not.",
        ge=0,
    )
    adaptive_target_p50_ms: int = _cluster(
        50, "Half of the slices are to be answered within this many milliseconds after their delivery.", ge=1
    )
    worker_ping_interval_ms: int = _cluster(
        2000,
        "A sidecar looks at its adapter process at least every so many milliseconds, and more often where "
        "`SIE_ACK_WAIT_S` / (`SIE_WORKER_READYZ_STALE_MULT` + 1) is shorter.",
        ge=100,
    )
    worker_readyz_stale_mult: float = _cluster(
        3.0,
        "A sidecar is not ready and gives its work back when its adapter process has left this many looks unanswered, "
        "and after `SIE_ACK_WAIT_S` at the latest.",
        ge=1,
    )

    # Of the config service.
    config_store_dir: Path | str = _config_service(
        Path("config-store"),
        "The config service keeps what its API was told in this place: a folder, or `s3://bucket/prefix`, `gs://…`, "
        "`az://…`.",
    )
    config_restore: bool = _config_service(
        True,
        "A config service begins with the models that its store holds; with `false`, it begins without them, at the "
        "epoch that was reached, and the first write gives them up.",
    )
    bundles_dir: Path | None = _config_service(
        None,
        "The config service reads its bundles from this folder. Unset, it takes those that the installation holds.",
    )
    admin_token: SecretStr | None = _config_service(
        None,
        "Who sends this token may write configs and, where clients need tokens, change pools. The config service and "
        "gateways have it, workers do not.",
    )
    deployment_env: str | None = _config_service(
        None,
        "A config service without tokens answers nobody where this is `prod` or `production`. With another value, or "
        "unset, everybody may read and write.",
    )
    env: str | None = _config_service(None, "This is another name of `SIE_DEPLOYMENT_ENV`.")

    def queue_options(self) -> dict[str, str]:
        """Give what is set of a queue transport's `SIE_NATS_*` but the URL, by the rest of its name in lower case."""
        names = [name for name in Settings.model_fields if name.startswith("nats_") and name not in _NOT_OF_THE_BROKER]
        named = {name.removeprefix("nats_"): getattr(self, name) for name in names}
        plain = {k: v.get_secret_value() if isinstance(v, SecretStr) else v for k, v in named.items()}
        return {name: str(value) for name, value in plain.items() if value is not None}

    @field_validator("nats_replicas", mode="before")
    @classmethod
    def _number(cls, value: Any) -> Any:  # a `Literal` of numbers takes no text, which all variables are
        return int(value) if isinstance(value, str) and value.isdecimal() else value

    @field_validator("log_level", mode="before")
    @classmethod
    def _in_capitals(cls, value: Any) -> Any:
        return value.upper() if isinstance(value, str) else value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read arguments over the environment, less Kubernetes' service links, which may have a setting's very name."""
        assert isinstance(env_settings, EnvSettingsSource)
        environ = env_settings.env_vars
        env_settings.env_vars = {name: value for name, value in environ.items() if not is_service_link(name, environ)}
        return init_settings, env_settings

    @field_validator("models_dir", "config_store_dir", mode="before")
    @classmethod
    def _path_or_url(cls, value: Any) -> Any:
        return Path(value) if isinstance(value, str) and "://" not in value else value

    @field_validator("admin_token", "config_read_token", "auth_token", "auth_tokens")
    @classmethod
    def _sendable(cls, value: SecretStr | tuple[SecretStr, ...] | None) -> SecretStr | tuple[SecretStr, ...] | None:
        tokens = value if isinstance(value, tuple) else (value,)
        if not all(token is None or re.fullmatch(r"[!-~]+", token.get_secret_value()) for token in tokens):
            raise ValueError("a token is printable ASCII without blanks and line ends")
        return value

    @field_validator("cors_origins")
    @classmethod
    def _origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return _each_like(value, r"\*|[a-z][a-z0-9+.\-]*://[^/\s]+", "`https://app.example.com`, or `*`")

    @field_validator("allowed_hosts")
    @classmethod
    def _hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return _each_like(value, r"\*|(\*\.)?[a-z0-9_\-]+(\.[a-z0-9_\-]+)*", "`sie.example.com`, without a port")

    @field_validator(
        "max_request_body_bytes",
        "max_reply_bytes",
        "max_item_text_bytes",
        "disk_cache_max_bytes",
        "memory_limit_bytes",
        mode="before",
    )
    @classmethod
    def _bytes(cls, value: Any) -> Any:
        if not isinstance(value, str) or value.strip().isdecimal():
            return value
        try:
            return _BYTES.validate_python(value)
        except ValidationError:
            raise ValueError("it is no number of bytes; write digits, or a unit as in `512MB` and `2GiB`") from None

    @field_validator("trusted_proxies")
    @classmethod
    def _networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for each in value:
            try:
                ip_network(each)
            except ValueError:
                raise ValueError(f"{each!r} is no network; write `10.0.0.0/8` or `fd00::/8`") from None
        return value

    @field_validator("gateway_workers")
    @classmethod
    def _workers(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return _each_like(value, r"https?://[^/\s]+", "`http://worker-1:8081`")

    @field_validator("gateway_configured_gpus")
    @classmethod
    def _profiles(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return _each_like(value, r"[a-z0-9][a-z0-9_\-]*", "`a100-80gb`")

    @field_validator(
        "cors_origins",
        "allowed_hosts",
        "trusted_proxies",
        "gateway_configured_gpus",
        "gateway_workers",
        "model_filter",
        "preload_models",
        "weight_folders",
        "pinned_models",
        "nats_config_trusted_producers",
        "auth_tokens",
        "plugins",
        "plugins_blocked",
        mode="before",
    )
    @classmethod
    def _split(cls, value: Any) -> Any:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value


def _each_like(values: tuple[str, ...], pattern: str, wanted: str) -> tuple[str, ...]:
    """Return the values in lower case; each must be of a form."""
    for value in values:
        if not re.fullmatch(pattern, value.lower()):
            raise ValueError(f"{value!r} is not of the form {wanted}")
    return tuple(value.lower() for value in values)


def with_broker(settings: Settings, url: str, options: Mapping[str, str]) -> Settings:
    """Copy the settings with another broker and login; `options` are as `Settings.queue_options` has them."""
    login = {f"nats_{name}": SecretStr(value) if name == "password" else value for name, value in options.items()}
    return settings.model_copy(update={"nats_url": SecretStr(url), **login})


def queue_variables(url: str, options: Mapping[str, str]) -> dict[str, str]:
    """Give the variables that name a broker and how to log in; `options` are as `Settings.queue_options` has them."""
    return {variable(f"nats_{name}"): value for name, value in {"url": url, **options}.items()}


def variable(field: str) -> str:
    """Name the environment variable of a settings field."""
    return PREFIX + field.upper()


def load_settings(**arguments: Any) -> Settings:
    """Read the settings; `arguments` that are not None win over the environment.

    Raises:
        SettingsError: A value is not allowed; the message says which, where from and what is.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        problems = []
        for problem in error.errors(include_url=False):
            field = str(problem["loc"][0]) if problem["loc"] else "?"
            origin = f"--{field.replace('_', '-')}" if field in given else variable(field)
            about = Settings.model_fields[field].description if field in Settings.model_fields else ""
            said = (
                _INTEGER
                if problem["type"] in ("int_parsing", "int_from_float")
                else problem["msg"].removeprefix("Value error, ")
            )
            problems.append(f"{origin}={_shown(field, problem['input'])}: {said}. {about}".rstrip())
        raise SettingsError("\n".join(problems)) from None


def _shown(field: str, value: Any) -> str:
    """Write a bad value, unless the field holds a secret; a password in a URL is left out."""
    described = Settings.model_fields.get(field)
    secret = described is not None and "Secret" in str(described.annotation)
    return "(a secret)" if secret else re.sub(r"//[^/]*@", "//…@", repr(value))


def describe_settings(group: Group | None = None) -> list[tuple[str, str, str]]:
    """List the settings of a group, or of all, as variable, default and meaning, for the documentation."""
    rows = []
    for name, field in Settings.model_fields.items():
        if group is not None and field.json_schema_extra != {"group": group}:
            continue
        default = field.default
        if isinstance(default, bool):
            shown = str(default).lower()
        elif default is None or default == ():
            shown = ""
        elif isinstance(default, float):
            shown = f"{default:g}"
        elif isinstance(default, tuple):
            shown = ",".join(default)
        else:
            shown = str(default)
        rows.append((variable(name), shown, field.description or ""))
    return rows


def core_variables() -> frozenset[str]:
    """Name the variables of all settings."""
    return frozenset(variable(field) for field in Settings.model_fields)


def unknown_variables(of_plugins: Iterable[str] = (), environ: Mapping[str, str] | None = None) -> list[str]:
    """Describe every `SIE_*` variable that means nothing here, with what to know instead or the nearest known name.

    Args:
        of_plugins: The variables that plugins read.
        environ: Where to look; None takes the environment.
    """
    environ = os.environ if environ is None else environ
    known = core_variables() | ECOSYSTEM | set(of_plugins)
    warnings = []
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in known or is_service_link(name, environ):
            continue
        if name in GONE:
            warnings.append(f"{name} is set but is gone: {GONE[name]}")
            continue
        nearest = process.extractOne(name, sorted(known), score_cutoff=60)
        hint = f"; did you mean {nearest[0]}?" if nearest else ""
        warnings.append(f"{name} is set but is no setting of SIE{hint}")
    return warnings


_LINK = re.compile(r"(?:tcp|udp|sctp)://[^/]+:\d+\Z")
_LINK_PORT = re.compile(r"_PORT(?:_\d+_(?:TCP|UDP|SCTP))?\Z")


def is_service_link(name: str, environ: Mapping[str, str | None]) -> bool:
    """Whether Kubernetes put a variable into `environ` because a service is called `sie…`.

    For each service it sets `<NAME>_PORT=tcp://…`, `<NAME>_SERVICE_HOST`, `<NAME>_SERVICE_PORT[_…]` and
    `<NAME>_PORT_<port>_<protocol>[_…]`.
    """
    name = name.upper()
    links = {
        other.upper()
        for other, value in environ.items()
        if _LINK.match(value or "") and _LINK_PORT.search(other.upper())
    }
    services = [link.removesuffix("_PORT") for link in links if link.endswith("_PORT")]
    return name in links or any(name.startswith((f"{each}_SERVICE_", f"{each}_PORT_")) for each in services)
