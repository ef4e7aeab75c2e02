"""The settings of gateways, workers and config services, on top of the core's."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import SecretStr, field_validator

from sie_core.settings import (
    Names,
    Settings,
    SettingsError,
    each_like,
    number_of_bytes,
    path_or_url,
    sendable,
    setting,
    split,
    variable,
)

_NOT_OF_THE_BROKER = frozenset({"nats_url", "nats_config_trusted_producers"})
"""Fields named `nats_…` that are no options of a queue transport."""

POOL_OF_ALL = "_default"
"""The queue pool of models that name none."""

_cluster, _config_service = partial(setting, "cluster"), partial(setting, "config service")


class ClusterSettings(Settings):
    """The settings in force: arguments over environment over defaults."""

    gone: ClassVar[Mapping[str, str]] = {
        **Settings.gone,
        "SIE_BATCHER_COALESCE_MS": "a sidecar sends slices on at once",
        "SIE_GATEWAY_KUBERNETES": "SIE_GATEWAY_K8S_SERVICE names the headless service of the workers",
    }

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
        "`gs://…`, `az://…`. Unset, or if it does not answer, they travel in frames.",
        min_length=1,
    )
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
    gateway_memory_bytes: int | None = _cluster(
        None,
        "Bodies, slices and results take at most this many bytes of a gateway. Unset, it is half of the memory of its "
        "container or machine, but at most 2 GiB.",
        ge=1 << 26,
    )
    sidecar_memory_bytes: int | None = _cluster(
        None,
        "Large slices and results take at most this many bytes of a sidecar. Unset, it is half of the memory of its "
        "container or machine, but at most 1 GiB.",
        ge=1 << 26,
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
    gateway_k8s_service: str | None = _cluster(
        None, "A gateway on Kubernetes dials the pods of this headless service of workers with `ws`, too."
    )
    gateway_k8s_namespace: str = _cluster("default", "`SIE_GATEWAY_K8S_SERVICE` is in this namespace.")
    gateway_k8s_port: int = _cluster(
        8080, "The probes of workers answer on this port of the pods of `SIE_GATEWAY_K8S_SERVICE`.", ge=1, le=65535
    )
    gateway_configured_gpus: Names = _cluster(
        (),
        "Machines of these comma-separated profiles can be added, as `l4, a100-80gb`: clients may ask for them, and "
        "for those of living workers. A scaler is told that requests which ask for none want the first.",
    )
    pool_lease_s: float = _cluster(
        1200.0,
        "A resource pool ends when nobody has renewed it for this many seconds; all gateways need the same value.",
        ge=1,
    )
    pool_token: SecretStr | None = _cluster(
        None,
        "Who sends this token may change resource pools, where clients need tokens. Gateways have it. Unset, who sends "
        "`SIE_ADMIN_TOKEN` may, if a gateway has that.",
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
    rust_pipeline_depth: int | None = _cluster(None, "This is another name of `SIE_PIPELINE_DEPTH`.", ge=1)
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
        "The config service keeps a backup of what its API was told in this place: a folder, or `s3://bucket/prefix`, "
        "`gs://…`, `az://…`. Without a broker this is the only copy.",
    )
    config_restore: bool = _config_service(
        True,
        "A config service restores the backup where the broker keeps no models yet; with `false`, it begins without "
        "models, above the backup's epoch.",
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

    def dialled(self) -> tuple[str, ...]:
        """Give the URLs of the workers that a gateway dials.

        Raises:
            SettingsError: None is named.
        """
        if (service := self.gateway_k8s_service) is not None:
            return *self.gateway_workers, f"http://{service}.{self.gateway_k8s_namespace}.svc:{self.gateway_k8s_port}"
        if not self.gateway_workers:
            raise SettingsError(
                "SIE_GATEWAY_HEALTH_MODE is 'ws', and no worker to dial is named: set SIE_GATEWAY_WORKERS to URLs, as "
                "http://worker-1:8081, or SIE_GATEWAY_K8S_SERVICE to their headless service, or unset the mode."
            )
        return self.gateway_workers

    def queue_options(self) -> dict[str, str]:
        """Give what is set of a queue transport's `SIE_NATS_*` but the URL, by the rest of its name in lower case."""
        names = [
            name for name in type(self).model_fields if name.startswith("nats_") and name not in _NOT_OF_THE_BROKER
        ]
        named = {name.removeprefix("nats_"): getattr(self, name) for name in names}
        plain = {k: v.get_secret_value() if isinstance(v, SecretStr) else v for k, v in named.items()}
        return {name: str(value) for name, value in plain.items() if value is not None}

    @property
    def own_profile(self) -> str | None:
        """The machine profile of a worker: its own, or its queue pool's name; None in the pool that all share."""
        profile = self.machine_profile or (None if self.pool == POOL_OF_ALL else self.pool)
        return None if profile is None else profile.lower()

    @field_validator("nats_replicas", mode="before")
    @classmethod
    def _number(cls, value: Any) -> Any:  # a `Literal` of numbers takes no text, which all variables are
        return int(value) if isinstance(value, str) and value.isdecimal() else value

    @field_validator("config_store_dir", mode="before")
    @classmethod
    def _store(cls, value: Any) -> Any:
        return path_or_url(value)

    @field_validator("gateway_memory_bytes", "sidecar_memory_bytes", mode="before")
    @classmethod
    def _memory(cls, value: Any) -> Any:
        return number_of_bytes(value)

    @field_validator("admin_token", "config_read_token", "pool_token")
    @classmethod
    def _tokens(cls, value: SecretStr | None) -> Any:
        return sendable(value)

    @field_validator("gateway_workers")
    @classmethod
    def _workers(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return each_like(value, r"https?://[^/\s]+", "`http://worker-1:8081`")

    @field_validator("gateway_k8s_service", "gateway_k8s_namespace")
    @classmethod
    def _dns_label(cls, value: str | None) -> str | None:
        return value and each_like((value,), r"[a-z0-9]([a-z0-9\-]*[a-z0-9])?", "`workers`")[0]

    @field_validator("gateway_configured_gpus")
    @classmethod
    def _profiles(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return each_like(value, r"[a-z0-9][a-z0-9_\-]*", "`a100-80gb`")

    @field_validator("gateway_configured_gpus", "gateway_workers", "nats_config_trusted_producers", mode="before")
    @classmethod
    def _split_of_cluster(cls, value: Any) -> Any:
        return split(value)


def with_broker(settings: ClusterSettings, url: str, options: Mapping[str, str]) -> ClusterSettings:
    """Copy the settings with another broker and login; `options` are as `queue_options` has them."""
    login = {f"nats_{name}": SecretStr(value) if name == "password" else value for name, value in options.items()}
    return settings.model_copy(update={"nats_url": SecretStr(url), **login})


def queue_variables(url: str, options: Mapping[str, str]) -> dict[str, str]:
    """Give the variables that name a broker and how to log in; `options` are those of `queue_options`."""
    return {variable(f"nats_{name}"): value for name, value in {"url": url, **options}.items()}
