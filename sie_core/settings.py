"""Every `SIE_*` variable of the core, typed, with its default. Nothing else of the core reads the environment.

A plugin declares variables of its own as `sie_core.contracts.PluginSetting`, or in a subclass of `Settings` that its
commands read by `load_settings`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, TypeVar, overload

from pydantic import ByteSize, Field, PrivateAttr, SecretStr, TypeAdapter, ValidationError, field_validator
from pydantic_settings import BaseSettings, EnvSettingsSource, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from sie_core.likeness import closest

PREFIX, FILE = "SIE_", "_FILE"
CPU_BATCH_REQUESTS: Final = 64
"""Requests of a batch on a CPU, where one more text costs as much time as the one before."""
ECOSYSTEM = frozenset({"SIE_BASE_URL", "SIE_API_KEY"})
"""Variables of the client, which a server's environment may hold."""

Names = Annotated[tuple[str, ...], NoDecode]
Secrets = Annotated[tuple[SecretStr, ...], NoDecode]

_PROFILE = r"^[A-Za-z0-9][A-Za-z0-9_\-]*$"
_INTEGER = "it is no integer; write digits alone, as `64`"

_BYTES: Final = TypeAdapter(ByteSize)

S = TypeVar("S", bound="Settings")


def setting(group: str, default: Any, description: str, **bounds: Any) -> Any:
    """Declare a setting.

    Args:
        group: The table of the documentation that lists it; the core's are `basic`, for whoever runs a server, and
            `advanced`, for the same one on a day of need.
        default: Its value where it is unset.
        description: Whole sentences, the last of which says what unset means.
        bounds: Further arguments of `pydantic.Field`.
    """
    return Field(default, description=description, json_schema_extra={"group": group}, **bounds)


_basic, _advanced = partial(setting, "basic"), partial(setting, "advanced")


class SettingsError(Exception):
    """A variable has a value that is not allowed; the message names all three."""


class Settings(BaseSettings):
    """The settings in force: arguments over environment over defaults."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid", env_ignore_empty=True)

    gone: ClassVar[Mapping[str, str]] = {
        "SIE_BATCH_POLICY": "SIE_SCHEDULER names what decides whose work runs next",
        "SIE_MAX_BATCH_WAIT_MS": "no batch waits to fill while its device is idle",
        "SIE_PRIORITY_STREAM": "long batches are preempted between their layers where the runner can",
    }
    """Variables of earlier and other releases that nothing reads, with what to know instead."""
    _files: dict[str, Path] = PrivateAttr(default_factory=dict)

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

    status_page: bool = _basic(
        True, "A browser that asks for `/` gets a page that shows the server at work; with `false`, it gets the JSON."
    )

    tracing_enabled: bool = _basic(
        False,
        "Requests are traced with OpenTelemetry, by its standard variables. The extra *tracing* of sie-core brings it.",
    )

    # Of one server too, which most leave as they are.
    log_settings: Path | None = _advanced(
        None,
        "This file holds lines `SIE_LOG_LEVEL=…` and `SIE_ACCESS_LOG=…`, which win over those variables. It is read at "
        "the start and again at each SIGHUP, which then drains no more.",
    )
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
    frontends: int = _advanced(
        0,
        "This many processes read requests and write replies for a standalone server, while one more process "
        "runs the models. 0 has one process do all. They come with sie-cluster.",
        ge=0,
        le=64,
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
    max_batch_requests: int | None = _advanced(
        None,
        "A batch holds items of at most this many requests. Unset, it is 64 on a CPU, and on a GPU its cost alone "
        "bounds it.",
        ge=1,
    )
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
    pool: str = _advanced(
        "_default", "A gateway fills this queue pool, and a worker pulls from it.", pattern=r"^[A-Za-z0-9_\-]+$"
    )
    bundle: str = _advanced("default", "A worker serves the models of this bundle.", pattern=r"^[A-Za-z0-9_\-]+$")
    bundles_dir: Path | None = _advanced(
        None,
        "Bundles are read from this folder. Unset, they are those that the installation holds.",
    )
    machine_profile: str | None = _advanced(
        None,
        "Clients ask for this worker or server by this machine profile, such as `l4-spot`, in `gpu`. Unset, a server "
        "goes by `SIE_GPU_TYPE`, and a worker by `SIE_POOL`, unless that is the default one.",
        pattern=_PROFILE,
    )
    gpu_count: int | None = _advanced(
        None,
        "A worker says that it has this many GPUs. Unset, it says 1 where it has a GPU type or machine profile.",
        ge=0,
    )
    worker_id: str | None = _advanced(
        None,
        "A worker has this name. Unset, it is made of the host's name and the process's number.",
        pattern=r"^[A-Za-z0-9._\-]+$",
    )

    def file_of(self, field: str) -> Path | None:
        """Name the file that the secret of a field was read from."""
        return self._files.get(field)

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
        """Read arguments over the file of log settings over the environment, less Kubernetes' service links.

        These may have a setting's very name.
        """
        assert isinstance(env_settings, EnvSettingsSource)
        environ = env_settings.env_vars
        given = {name: value for name, value in environ.items() if not is_service_link(name, environ)}
        if file := given.get(variable("log_settings").lower()):
            given |= {name.lower(): value for name, value in _log_settings(Path(file)).items()}
        env_settings.env_vars = given
        return init_settings, env_settings

    @field_validator("models_dir", mode="before")
    @classmethod
    def _path_or_url(cls, value: Any) -> Any:
        return path_or_url(value)

    @field_validator("auth_token", "auth_tokens")
    @classmethod
    def _sendable(cls, value: SecretStr | tuple[SecretStr, ...] | None) -> SecretStr | tuple[SecretStr, ...] | None:
        return sendable(value)

    @field_validator("cors_origins")
    @classmethod
    def _origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return each_like(value, r"\*|[a-z][a-z0-9+.\-]*://[^/\s]+", "`https://app.example.com`, or `*`")

    @field_validator("allowed_hosts")
    @classmethod
    def _hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return each_like(value, r"\*|(\*\.)?[a-z0-9_\-]+(\.[a-z0-9_\-]+)*", "`sie.example.com`, without a port")

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
        return number_of_bytes(value)

    @field_validator("trusted_proxies")
    @classmethod
    def _networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for each in value:
            try:
                ip_network(each)
            except ValueError:
                raise ValueError(f"{each!r} is no network; write `10.0.0.0/8` or `fd00::/8`") from None
        return value

    @field_validator(
        "cors_origins",
        "allowed_hosts",
        "trusted_proxies",
        "model_filter",
        "preload_models",
        "weight_folders",
        "pinned_models",
        "auth_tokens",
        "plugins",
        "plugins_blocked",
        mode="before",
    )
    @classmethod
    def _split(cls, value: Any) -> Any:
        return split(value)


def number_of_bytes(value: Any) -> Any:
    """Read a number of bytes with a unit; digits and anything else stay as they are.

    Raises:
        ValueError: It is no number of bytes.
    """
    if not isinstance(value, str) or value.strip().isdecimal():
        return value
    try:
        return _BYTES.validate_python(value)
    except ValidationError:
        raise ValueError("it is no number of bytes; write digits, or a unit as in `512MB` and `2GiB`") from None


def split(value: Any) -> Any:
    """Split a text at its commas; anything else stays as it is."""
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


def path_or_url(value: Any) -> Any:
    """Make a path of a text that is no URL."""
    return Path(value) if isinstance(value, str) and "://" not in value else value


def sendable(value: SecretStr | tuple[SecretStr, ...] | None) -> SecretStr | tuple[SecretStr, ...] | None:
    """Return tokens that a header can carry.

    Raises:
        ValueError: One cannot be sent.
    """
    tokens = value if isinstance(value, tuple) else (value,)
    if not all(token is None or re.fullmatch(r"[!-~]+", token.get_secret_value()) for token in tokens):
        raise ValueError("a token is printable ASCII without blanks and line ends")
    return value


def each_like(values: tuple[str, ...], pattern: str, wanted: str) -> tuple[str, ...]:
    """Return the values in lower case; each must be of a form.

    Raises:
        ValueError: One is not.
    """
    for value in values:
        if not re.fullmatch(pattern, value.lower()):
            raise ValueError(f"{value!r} is not of the form {wanted}")
    return tuple(value.lower() for value in values)


def variable(field: str) -> str:
    """Name the environment variable of a settings field."""
    return PREFIX + field.upper()


def _log_settings(file: Path) -> dict[str, str]:
    """Read the variables of a file of log settings.

    Raises:
        SettingsError: It cannot be read, or sets another variable.
    """
    try:
        lines = map(str.strip, file.read_text(encoding="utf-8").splitlines())
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"SIE_LOG_SETTINGS={file} cannot be read: {error}") from None
    pairs = (line.partition("=")[::2] for line in lines if line and not line.startswith("#"))
    values = {name.strip(): value.strip() for name, value in pairs}
    if other := next((name for name in values if name not in ("SIE_LOG_LEVEL", "SIE_ACCESS_LOG")), None):
        raise SettingsError(f"SIE_LOG_SETTINGS={file} sets {other!r}; it may set SIE_LOG_LEVEL and SIE_ACCESS_LOG.")
    return values


def secret_files(model: type[Settings] = Settings, environ: Mapping[str, str] | None = None) -> dict[str, Path]:
    """List the files that hold secrets, by the field: for a secret `SIE_X`, `SIE_X_FILE` names one.

    Raises:
        SettingsError: Both variables of a secret are set.
    """
    environ = os.environ if environ is None else environ
    files = {}
    for field in filter(partial(is_secret, model), model.model_fields):
        name = variable(field)
        if file := environ.get(name + FILE):
            if environ.get(name):
                raise SettingsError(f"{name} and {name}{FILE}={file} are both set; unset one of the two.")
            files[field] = Path(file)
    return files


def read_secret(file: Path, *, several: bool) -> tuple[str, ...]:
    """Read a secret; or several, each on a line of its own or after a comma.

    Raises:
        SettingsError: It cannot be read, is empty, or has several lines and is to hold one secret.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"the secret of {file} cannot be read: {error}") from None
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise SettingsError(f"{file} is empty, and is to hold a secret")
    if several:
        return tuple(part.strip() for line in lines for part in line.split(",") if part.strip())
    if len(lines) > 1:
        raise SettingsError(f"{file} has {len(lines)} lines, and is to hold one secret")
    return (lines[0],)


def holds_several(model: type[Settings], field: str) -> bool:
    """Whether a field takes several values."""
    return isinstance(model.model_fields[field].default, tuple)


@overload
def load_settings(**arguments: Any) -> Settings: ...
@overload
def load_settings(model: type[S], /, **arguments: Any) -> S: ...
def load_settings(model: type[Settings] | None = None, /, **arguments: Any) -> Settings:
    """Read the settings of the core, or of `model`; `arguments` that are not None win over the environment.

    Raises:
        SettingsError: A value is not allowed; the message says which, where from and what is.
    """
    model = model or Settings
    given = {name: value for name, value in arguments.items() if value is not None}
    files = secret_files(model)
    of_files: dict[str, Any] = {}
    for name, file in files.items():
        if name not in given:
            several = holds_several(model, name)
            try:
                secrets = read_secret(file, several=several)
            except SettingsError as error:
                raise SettingsError(f"{variable(name)}{FILE}: {error}") from None
            of_files[name] = secrets if several else secrets[0]
    try:
        settings = model(**of_files, **given)
    except ValidationError as error:
        problems = []
        for problem in error.errors(include_url=False):
            field = str(problem["loc"][0]) if problem["loc"] else "?"
            origin = f"--{field.replace('_', '-')}" if field in given else variable(field)
            origin += FILE if field in of_files else ""
            about = model.model_fields[field].description if field in model.model_fields else ""
            said = (
                _INTEGER
                if problem["type"] in ("int_parsing", "int_from_float")
                else problem["msg"].removeprefix("Value error, ")
            )
            problems.append(f"{origin}={_shown(model, field, problem['input'])}: {said}. {about}".rstrip())
        raise SettingsError("\n".join(problems)) from None
    settings._files = {name: file for name, file in files.items() if name in of_files}
    return settings


def _shown(model: type[Settings], field: str, value: Any) -> str:
    """Write a bad value, unless the field holds a secret; a password in a URL is left out."""
    return "(a secret)" if is_secret(model, field) else re.sub(r"//[^/]*@", "//…@", repr(value))


def is_secret(model: type[Settings], field: str) -> bool:
    """Whether a field holds a secret, which nothing prints."""
    described = model.model_fields.get(field)
    return described is not None and "Secret" in str(described.annotation)


def describe_settings(group: str | None = None, model: type[Settings] = Settings) -> list[tuple[str, str, str]]:
    """List the settings of a group, or of all, as variable, default and meaning, for the documentation."""
    rows = []
    for name, field in model.model_fields.items():
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
    """Name the variables of the core's settings."""
    return variables_of(Settings)


def variables_of(model: type[Settings]) -> frozenset[str]:
    """Name the variables of all fields of a settings model."""
    files = (variable(field) + FILE for field in model.model_fields if is_secret(model, field))
    return frozenset((*map(variable, model.model_fields), *files))


def unknown_variables(
    of_plugins: Iterable[str] = (),
    environ: Mapping[str, str] | None = None,
    models: Iterable[type[Settings]] = (),
) -> list[str]:
    """Describe every `SIE_*` variable that means nothing here, with what to know instead or the nearest known name.

    Args:
        of_plugins: The variables that plugins read.
        environ: Where to look; None takes the environment.
        models: Settings that are read beside the core's.
    """
    environ = os.environ if environ is None else environ
    models = (Settings, *models)
    known = ECOSYSTEM.union(of_plugins, *map(variables_of, models))
    gone = {name: why for model in models for name, why in model.gone.items()}
    warnings = []
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in known or is_service_link(name, environ):
            continue
        if name in gone:
            warnings.append(f"{name} is set but is gone: {gone[name]}")
            continue
        nearest = closest(name, sorted(known))
        hint = f"; did you mean {nearest[0][1]}?" if nearest else ""
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
