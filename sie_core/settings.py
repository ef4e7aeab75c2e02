"""Every `SIE_*` variable of the core, typed, with its default. Nothing else of the core reads the environment.

Variables of plugins are declared and read as `sie_core.contracts.PluginSetting`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import ByteSize, Field, SecretStr, TypeAdapter, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)
from rapidfuzz import process

PREFIX = "SIE_"
ECOSYSTEM = frozenset({"SIE_BASE_URL", "SIE_API_KEY"})
"""Variables of the client, which a server's environment may hold."""

Names = Annotated[tuple[str, ...], NoDecode]
Secrets = Annotated[tuple[SecretStr, ...], NoDecode]

_PROFILE = r"^[A-Za-z0-9][A-Za-z0-9_\-]*$"
_INTEGER = "it is no integer; write digits alone, as `64`"
_NOT_OF_THE_BROKER = frozenset({"nats_url", "nats_config_trusted_producers"})
"""Fields named `nats_…` that are no options of a queue transport."""


_BYTES: Final = TypeAdapter(ByteSize)


class SettingsError(Exception):
    """A variable has a value that is not allowed; the message names all three."""


class Settings(BaseSettings):
    """The settings in force: arguments over environment over defaults."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid", env_ignore_empty=True)

    # Server
    http_host: str = Field("127.0.0.1", description="Address to listen on.")
    http_port: int = Field(8080, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    http_keep_alive_s: int = Field(
        120,
        ge=1,
        description="Seconds that a server, gateway or config service keeps an idle connection; more than its clients "
        "and the load balancer before it keep theirs (Go's client 90, most balancers 60, Google's 600).",
    )
    cors_origins: Names = Field(
        (),
        description="Comma-separated origins of web pages that may call the server, as `https://app.example.com`; `*` "
        "for any. Unset: none but its own.",
    )
    allowed_hosts: Names = Field(
        (),
        description="Comma-separated names that clients call the server by, beside addresses, loopback names and "
        "`SIE_HTTP_HOST`; `*.example.com` for all below one, `*` for any. Unset: any, where it listens on more than "
        "loopback.",
    )
    trusted_proxies: Names = Field(
        (),
        description="Comma-separated networks of proxies, as `10.0.0.0/8`: their X-Forwarded-For names the client. "
        "Unset: the client is the address that connects.",
    )
    default_model: str = Field(
        "sentence-transformers/all-MiniLM-L6-v2",
        description="Model of routes that name none, those of TEI: the embedded default.",
    )
    model_wait_s: float = Field(
        30.0, ge=0, description="Seconds OpenAI-, Cohere- and TEI-shaped routes wait for a load before they answer 503."
    )
    native_load_wait_s: float = Field(
        2.0,
        ge=0,
        description="Seconds native routes wait for a load that is predicted to end by then, before they answer 503.",
    )
    max_request_body_bytes: int = Field(34 * 2**20, ge=1, description="Largest request body; beyond it 413.")
    max_reply_bytes: int = Field(
        8 * 34 * 2**20,
        ge=1,
        description="Largest reply; beyond it 413. The default lets through the most items a request may have, each of "
        "4,096 dimensions, as float32 in msgpack.",
    )
    max_item_text_bytes: int = Field(
        2 * 2**20, ge=1, description="Largest text plus metadata of an item; beyond it 400."
    )
    drain_timeout_s: float = Field(25.0, ge=0, description="Seconds that requests in flight get after SIGTERM.")
    device: str = Field(
        "auto", pattern=r"^(auto|[a-z]+(:\d+)?)$", description="`auto`, `cuda`, `cuda:0`, `mps`, `cpu`."
    )
    models_dir: Path | str = Field(
        Path("models"),
        description="Folder of model configs, on top of those plugins ship: a local path, or `s3://bucket/prefix`, "
        "`gs://…`, `az://…`.",
    )
    models_poll_s: float = Field(
        15.0,
        gt=0,
        description="Seconds between two looks at a models folder in an object store; a local one is looked at every "
        "second.",
    )
    model_filter: Names = Field((), description="Comma-separated model ids to serve; unset: all.")
    preload_models: Names = Field((), description="Comma-separated model ids loaded before readiness.")
    weight_folders: Names = Field(
        (), description="Comma-separated folders of weights, each served under its own name, beside `SIE_MODELS_DIR`."
    )

    # Weights
    local_cache: Path | None = Field(
        None, description="Local weight cache in the Hub's layout; unset: the `hub` folder of `HF_HOME`."
    )
    baked_weights: Path | None = Field(
        None, description="Folder of weights in the Hub's layout that an image brings: asked first, never written to."
    )
    hf_fallback: bool = Field(True, description="Whether the Hugging Face Hub may be asked after the other tiers.")
    serve_any_model: bool | None = Field(
        None,
        description="Whether clients may have a server fetch any model of the Hub by naming it; unset: true where "
        "`SIE_HTTP_HOST` is on loopback, false elsewhere.",
    )
    cluster_cache: str | None = Field(
        None,
        pattern=r"^[a-z][a-z0-9+.\-]*://.",
        description="Weight store that machines share, asked before the Hub: `s3://bucket/prefix`, `gs://…`, `az://…`.",
    )
    cluster_cache_fill: bool = Field(False, description="Whether weights the Hub gave are stored in the cluster cache.")
    disk_cache_enabled: bool = Field(
        True, description="Whether the local cache removes its longest unused weights to stay within its limits."
    )
    disk_pressure_threshold_percent: float = Field(
        85.0, gt=0, le=100, description="Use of the local cache's disk above which it removes weights."
    )
    disk_cache_max_bytes: int | None = Field(
        None, ge=1, description="Bytes the local cache may hold; unset: only the disk bounds it."
    )

    # Batching
    max_batch_cost: int = Field(16384, ge=1, description="Cost units of a batch; a model config may set its own.")
    max_batch_requests: int = Field(64, ge=1, description="Distinct requests of a batch.")
    max_batch_ms: float | None = Field(
        None,
        gt=0,
        description="Predicted run time of a batch, which may always take six times as long as an empty one; unset: "
        "250 on a CPU, no limit on a GPU.",
    )
    max_concurrent_requests: int = Field(512, ge=1, description="Requests admitted at once; beyond it 503 QUEUE_FULL.")
    max_queued_cost: int | None = Field(
        None,
        ge=1,
        description="Cost units queued at once; where others fill it, a client still has an equal share. Unset: 64 "
        "batches.",
    )
    preprocessor_workers: int | None = Field(
        None, ge=1, description="Threads for tokenisation and postprocessing; unset: min(4, CPU quota)."
    )
    image_workers: int | None = Field(
        None, ge=1, description="Threads that prepare requests with images; unset: min(4, CPU quota)."
    )

    # Memory
    memory_manager: str = Field("lru", description="Which registered memory manager chooses what is unloaded.")
    memory_pressure_threshold_percent: float = Field(
        85.0, gt=0, le=100, description="Use of the device above which the longest unused models are unloaded."
    )
    memory_limit_bytes: int | None = Field(
        None, ge=1, description="Treat the device as no larger than this; on a CPU it bounds the process."
    )
    idle_evict_s: float | None = Field(
        None, gt=0, description="Unload a model, or a LoRA adapter, after so many unused seconds."
    )
    pinned_models: Names = Field((), description="Comma-separated model ids that are never unloaded to make room.")
    lora_by_id: bool = Field(
        True,
        description="Requests may name LoRA adapters by a repository's id, which is then fetched, beside those that a "
        "model's config declares.",
    )
    max_loras_per_model: int = Field(
        10, ge=1, description="LoRA adapters a model keeps loaded; beyond it the longest unused is let go."
    )

    # Compute
    attention_backend: str = Field(
        "auto",
        pattern=r"^[a-z][a-z0-9_]*$",
        description="How attention is computed: `auto`, `sdpa`, `eager`, or what an installed runner names, such as "
        "`flash_attention_2`; one that is not installed stops the start.",
    )
    runner: str = Field(
        "auto",
        description="Which of the runners that prove themselves serves a model: `auto`, the fastest, by a race at its "
        "first load; `priority`, without a race; or the name of one that is tried first, such as `packed`.",
    )
    default_compute_precision: Literal["float16", "bfloat16", "float32"] = Field(
        "float16",
        description="Precision of models whose config names none: `float16`, `bfloat16` or `float32`; a device that is "
        "slow in it takes the nearest that is fast there and within the family's tolerance, and the log says which.",
    )
    instrumentation: bool = Field(False, description="Detailed batch statistics in `/metrics`.")

    # Cluster
    nats_url: SecretStr | None = Field(
        None,
        description="Broker of the queue, results, heartbeats and broadcasts: `nats://host:4222`, several by commas.",
    )
    nats_user: str | None = Field(None, description="User at the broker; one in the URL wins.")
    nats_password: SecretStr | None = Field(None, description="Its password.")
    nats_creds: Path | None = Field(None, description="File of credentials for the broker, as `nsc` writes it.")
    nats_tls_ca: Path | None = Field(
        None, description="PEM file of the authority that signed the broker's certificate."
    )
    nats_tls_cert: Path | None = Field(None, description="PEM file of a client certificate.")
    nats_tls_key: Path | None = Field(None, description="PEM file of its key.")
    nats_storage: Literal["file", "memory"] = Field(
        "file", description="Where the broker keeps queues and stores: `file` or `memory`."
    )
    nats_replicas: Literal[1, 3, 5] = Field(
        1, description="Copies of queues and stores in a cluster of brokers: `1`, `3` or `5`."
    )
    ack_wait_s: float = Field(
        5.0, ge=1, description="Seconds until work of a worker that was not heard of is given to another."
    )
    max_deliver: int = Field(20, ge=1, description="Times that one piece of work is given to workers at most.")
    payload_store_url: str | None = Field(
        None,
        min_length=1,
        description="Store that gateways and workers share for payloads larger than a message: a folder, or "
        "`s3://bucket/prefix`, `gs://…`, `az://…`. Unset: they travel in frames.",
    )
    payload_frames: bool = Field(
        True,
        description="Whether payloads larger than a message may travel in frames, where there is no store or it does "
        "not answer.",
    )
    pool: str = Field(
        "_default", pattern=r"^[A-Za-z0-9_\-]+$", description="Queue pool that a gateway fills and a worker pulls from."
    )
    bundle: str = Field("default", pattern=r"^[A-Za-z0-9_\-]+$", description="Bundle of models of a worker.")

    # Config service
    config_service_url: str | None = Field(
        None,
        pattern=r"^https?://[^\s/?#@]+(/[^\s?#@]*)?$",
        description="Config service that gateways and workers take their model configs from: `http://host:8080`. "
        "Unset: each takes those of its plugins and of `SIE_MODELS_DIR`, and a worker those that its sidecar brings.",
    )
    config_store_dir: Path | str = Field(
        Path("config-store"),
        description="Where the config service keeps what its API was told: a folder, or `s3://bucket/prefix`, "
        "`gs://…`, `az://…`.",
    )
    config_restore: bool = Field(
        True,
        description="Whether a config service begins with the models that its store holds; `false` begins without "
        "them, at the epoch that was reached, and the first write gives them up.",
    )
    bundles_dir: Path | None = Field(
        None, description="Folder of the config service's bundles; unset: those that the installation holds."
    )
    admin_token: SecretStr | None = Field(
        None,
        description="Token that may write configs and, where clients need tokens, change pools: for the config service "
        "and gateways, not for workers.",
    )
    config_read_token: SecretStr | None = Field(
        None, description="Token that may read configs, export included: what gateways and workers have."
    )
    auth_mode: Literal["none", "token", "static"] = Field(
        "none",
        description="Who may call a server, gateway or worker: `none` = everybody, `token` = who sends a bearer token "
        "of `SIE_AUTH_TOKEN` or `SIE_AUTH_TOKENS`; `static` is another name of `token`.",
    )
    auth_token: SecretStr | None = Field(
        None,
        description="Token of clients; at a config service it may read configs, but not the export.",
    )
    auth_tokens: Secrets = Field((), description="Comma-separated tokens of clients, beside `SIE_AUTH_TOKEN`.")
    auth_exempt_operational: bool = Field(
        False,
        description="Whether `/health`, `/tei/{model}/health`, `/metrics` and WebSockets answer without a token, as "
        "`/healthz`, `/livez`, `/readyz` and `/ping` always do.",
    )
    deployment_env: str | None = Field(
        None,
        description="`prod` or `production`: a config service without tokens answers nobody. Else, without tokens, "
        "everybody may read and write.",
    )
    env: str | None = Field(None, description="Another name of `SIE_DEPLOYMENT_ENV`.")
    nats_config_trusted_producers: Names = Field(
        ("sie-config",),
        description="Comma-separated names of config services whose broadcast changes are believed; one also stands "
        "for those that begin with it and a hyphen.",
    )
    worker_config_poll_interval_ms: int = Field(
        30_000,
        ge=100,
        description="Milliseconds between two looks of a gateway or worker at the config service's epoch, with jitter.",
    )
    worker_config_full_export_interval_ms: int = Field(
        300_000,
        ge=0,
        description="Milliseconds between two exports that a gateway or worker fetches although the epoch is the same; "
        "0: only at its start.",
    )

    # Gateway
    gateway_timeout_s: float = Field(
        120.0, gt=0, le=900, description="Seconds a gateway waits for an answer before it says 504."
    )
    gateway_max_concurrent_requests: int = Field(
        4096, ge=1, description="Requests a gateway admits at once; beyond it 503 QUEUE_FULL."
    )

    gateway_health_mode: Literal["nats", "ws"] = Field(
        "nats",
        description="What `/health` and `/ws/cluster-status` of a gateway show of workers: `nats`, what they say in "
        "heartbeats; `ws`, what each says when it is dialled, for diagnosis. Requests go by heartbeats in both.",
    )
    gateway_workers: Names = Field(
        (),
        description="Comma-separated URLs of workers that a gateway dials with `ws`, as `http://workers:8081`: where "
        "their probes answer. Each address of a name is a worker, as of a headless service.",
    )
    gateway_configured_gpus: Names = Field(
        (),
        description="Comma-separated machine profiles that can be scaled up, as `l4, a100-80gb`: clients may ask for "
        "them, and for those of living workers.",
    )

    pool_lease_s: float = Field(
        1200.0,
        ge=1,
        description="Seconds after which a resource pool that nobody renews ends; the same at all gateways.",
    )

    # Worker
    ipc_socket_path: Path = Field(
        Path("/tmp/sie-ipc.sock"), description="Unix socket between a worker's sidecar and its adapter process."
    )
    max_concurrent_batches: int = Field(
        4, ge=1, description="Batches' worth of slices of one model that a worker holds at once."
    )
    pipeline_depth: int = Field(
        2, ge=1, description="Batches that a sidecar sends its adapter process ahead of the one that runs."
    )
    batcher_max_batch_requests: int = Field(12, ge=1, description="Slices that count as a batch for that.")
    adaptive_min_quantum_ms: int = Field(
        2,
        ge=0,
        description="Milliseconds between two requests of a sidecar for more slices, at least while it has some.",
    )
    adaptive_max_quantum_ms: int = Field(
        15,
        ge=0,
        description="The same at most: it grows while the p50 of slices is under its target, and shrinks beyond.",
    )
    adaptive_target_p50_ms: int = Field(
        50, ge=1, description="That target: milliseconds from the delivery of a slice to its answer."
    )
    ipc_pool_size: int | None = Field(
        None, ge=1, description="Connections between sidecar and adapter process; unset: `SIE_MAX_CONCURRENT_BATCHES`."
    )
    worker_metrics_port: int = Field(
        9095, ge=0, le=65535, description="Port of a sidecar's probes and metrics; 0 takes a free one."
    )
    worker_id: str | None = Field(
        None, pattern=r"^[A-Za-z0-9._\-]+$", description="Name of a worker; unset: the host's and the process's."
    )
    machine_profile: str | None = Field(
        None,
        pattern=_PROFILE,
        description="Machine profile of a worker or standalone server, such as `l4-spot`: what clients ask for by "
        "`gpu`. Unset: a worker takes what asks for none, and a server goes by `SIE_GPU_TYPE`.",
    )
    gpu_type: str | None = Field(
        None, pattern=_PROFILE, description="GPU of this machine, such as `l4` or `a100-80gb`; unset: detected."
    )
    gpu_count: int | None = Field(
        None, ge=0, description="GPUs that a worker advertises; unset: 1 where it has a GPU type or machine profile."
    )
    pool_admission_enabled: bool = Field(
        True,
        description="Whether a worker that was given to a resource pool serves that pool's work alone; `false`: it "
        "serves what belongs to no pool.",
    )
    gateway_url: str | None = Field(
        None,
        description="A gateway that a sidecar asks for the resource pool of its worker where it may not read the "
        "broker's store.",
    )
    worker_ping_interval_ms: int = Field(
        2000,
        ge=100,
        description="Milliseconds between two looks of a sidecar at its adapter process, at most; less where "
        "`SIE_ACK_WAIT_S` / (`SIE_WORKER_READYZ_STALE_MULT` + 1) is shorter.",
    )
    worker_readyz_stale_mult: float = Field(
        3.0,
        ge=1,
        description="Pings that an adapter process may leave unanswered until its sidecar is not ready and gives its "
        "work back, which is after `SIE_ACK_WAIT_S` at most.",
    )
    health_publish_interval_ms: int = Field(
        5000, ge=100, description="Milliseconds between two heartbeats of a worker or gateway."
    )

    # Logs
    log_json: bool = Field(False, description="One JSON object a line.")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        "INFO", description="Least level logged: `DEBUG`, `INFO`, `WARNING` or `ERROR`."
    )
    access_log: Literal["off", "slow", "all"] = Field(
        "off",
        description="Which answered requests have a line in the log of a server, gateway or worker: `off`, none; "
        "`slow`, those that took 1 s or longer, as whoever waits longer loses the thread; `all`. The "
        "lines of probes and other look-ups are at debug level.",
    )

    # Plugins
    plugins: Names = Field((), description="Comma-separated entry points to load; unset: all.")
    plugins_blocked: Names = Field((), description="Comma-separated entry points never loaded.")
    strict_plugins: bool = Field(False, description="Whether a broken plugin stops the start.")
    trace_hooks: bool = Field(False, description="Log every hook call.")
    scheduler: str = Field("fair", description="Which registered scheduler decides whose work runs next.")

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


def describe_settings() -> list[tuple[str, str, str]]:
    """List every setting as variable, default and meaning, in the order of their sections, for the documentation."""
    rows = []
    for name, field in Settings.model_fields.items():
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
    """Describe every `SIE_*` variable that means nothing here, with the nearest known name.

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
