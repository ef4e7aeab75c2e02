"""The shape of a model config file: strict, every level closed to unknown keys.

Fields that are accepted and not served (`routing`, generation) keep existing model folders loadable.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field, JsonValue, model_validator
from pydantic_core import PydanticCustomError

from sie_core.catalog.configs.ids import ID_RULE, is_model_id, is_profile_name
from sie_core.catalog.wording import did_you_mean, short

FreeMap = dict[str, JsonValue]
"""A map with any keys, of values that JSON can hold: configs are hashed, and sent to other machines, as JSON."""


class Strict(BaseModel):
    """A map of known fields, of exactly their types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        known = _names(cls)
        if data.keys() <= known.keys():  # at once: a catalog of thousands is read at a start
            return data
        for key in data:
            if key not in known:
                raise PydanticCustomError(
                    "unknown_key",
                    "`{key}` is no field here.{hint} Known: {known}",
                    {"key": str(key), "hint": did_you_mean(str(key), known), "known": ", ".join(known)},
                )
        return data


@cache
def _names(model: type[BaseModel]) -> dict[str, None]:
    names: list[str] = []
    for name, field in model.model_fields.items():
        alias = field.validation_alias
        names += [str(choice) for choice in alias.choices] if isinstance(alias, AliasChoices) else [name]
    return dict.fromkeys(names)


class VectorTask(Strict):
    """One kind of vector `encode` returns. `matryoshka_dims` lists the sizes `dimensions` may name."""

    dim: Annotated[int, Field(ge=1)] | None = None
    matryoshka_dims: list[Annotated[int, Field(ge=1)]] | None = None


class EncodeTask(Strict):
    """Outputs of `encode`."""

    dense: VectorTask | None = None
    sparse: VectorTask | None = None
    multivector: VectorTask | None = None


class Tasks(Strict):
    """The operations a model declares; the maps of `score`, `extract` and `generate` are free."""

    encode: EncodeTask | None = None
    score: FreeMap | None = None
    extract: FreeMap | None = None
    generate: FreeMap | None = None


class Inputs(Strict):
    """Kinds of input that an item may hold."""

    text: bool = True
    image: bool = False
    audio: bool = False
    video: bool = False
    document: bool = False


class AdapterOptions(Strict):
    """Options read when the model loads, and options read at each request."""

    loadtime: FreeMap = Field(default_factory=dict)
    runtime: FreeMap = Field(default_factory=dict)


class AdaptiveBatching(Strict):
    """Accepted for existing folders; the scheduler needs no tuning by model."""

    enabled: bool | None = None
    target_p50_ms: float | None = None
    calibration_multiplier: float | None = None
    min_target_p50_ms: float | None = None
    max_target_p50_ms: float | None = None
    min_wait_ms: float | None = None
    max_wait_ms: float | None = None
    gain: float | None = None
    integral_gain: float | None = None


class ProfileFile(Strict):
    """One profile as written, before `extends` is applied."""

    extends: str | None = None
    adapter_path: Annotated[str, Field(min_length=1)] | None = None
    max_batch_tokens: Annotated[int, Field(ge=1)] | None = None
    compute_precision: Literal["float16", "bfloat16", "float32"] | None = None
    adapter_options: AdapterOptions = Field(default_factory=AdapterOptions)
    adaptive_batching: AdaptiveBatching | None = None
    kv_budget_tokens: int | None = None
    admission_enabled: bool | None = None
    max_output_tokens: int | None = None
    chat_template_kwargs: FreeMap | None = None
    grammar_profile: str | None = None


ModuleEntry = str | Annotated[dict[str, FreeMap], Field(min_length=1, max_length=1)]
"""A class as `modules.json` names it, or a map from the class to its own config."""


class WeightsFile(Strict):
    """Facts of the weights' files, as far as they are known before the files are fetched."""

    model_type: str | None = None
    architectures: list[str] = Field(default_factory=list)
    modules: list[ModuleEntry] = Field(default_factory=list)
    files: list[str] = Field(default_factory=list)


class PickleFile(Strict):
    """A pickled file that may be read if it has this hash, and this size."""

    size: Annotated[int, Field(ge=1)] | None = None
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class LoraFile(Strict):
    """Source of a LoRA adapter's weights; an empty map means the repository of the adapter's name."""

    hf_id: str | None = None
    hf_revision: str | None = None
    weights_path: Annotated[str, Field(min_length=1)] | None = None


class Routing(Strict):
    """Accepted for existing folders; no request is routed elsewhere."""

    policy: Literal["remote_only", "fallback", "threshold"] | None = None
    fallback_profile: str | None = None
    triggers: list[str] | None = None
    wake_above: float | None = None
    sleep_below: float | None = None
    window_s: float | None = None
    cooldown_s: float | None = None


class ModelFile(Strict):
    """One model config file."""

    id: Annotated[str, Field(validation_alias=AliasChoices("sie_id", "model_id"))]
    hf_id: str | None = None
    hf_revision: str | None = None
    hf_tokenizer_dependencies: dict[str, str] | None = None
    weights_path: Annotated[str, Field(min_length=1)] | None = None
    weights: WeightsFile | None = None
    pickles: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*$")], PickleFile] = Field(
        default_factory=dict
    )
    unserved: Annotated[str, Field(min_length=1)] | None = None
    license: str | None = None
    package_backed: bool = False
    remote_backed: bool = False
    routing: Routing | None = None
    pool: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,128}$"), AfterValidator(str.lower)] | None = None
    weight: Annotated[float, Field(ge=0.01, le=100)] = 1.0
    inputs: Inputs = Inputs()
    tasks: Tasks = Tasks()
    max_sequence_length: Annotated[int, Field(ge=1)] | None = None
    accept_token_ids: bool = False
    trust_remote_code: bool = False
    loras: dict[str, LoraFile] = Field(default_factory=dict)
    profiles: Annotated[dict[str, ProfileFile], Field(min_length=1)] = Field(
        default_factory=lambda: {"default": ProfileFile()}
    )
    sources: dict[str, Annotated[str, Field(pattern=r"^https://\S+$")]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _consistent(self) -> ModelFile:
        if not is_model_id(self.id):
            _refuse(f"`sie_id` is {short(self.id)}; an id is {ID_RULE}")
        for field in ("hf_id", "hf_revision"):
            value = getattr(self, field)
            if value is not None and not is_model_id(value):
                _refuse(f"`{field}` is {short(value)}; allowed are {ID_RULE}")
        has_origin = self.hf_id or self.weights_path or self.package_backed or self.remote_backed
        _require(has_origin, "one of `hf_id`, `weights_path`, `package_backed`, `remote_backed` is needed")
        _require(self.pool != "_default", "`pool` may not be `_default`; leave it out for the default pool")
        for named in (word for pair in (self.hf_tokenizer_dependencies or {}).items() for word in pair):
            if not is_model_id(named):
                _refuse(f"`hf_tokenizer_dependencies`: {short(named)} is no id; allowed are {ID_RULE}")
        for name, lora in self.loras.items():
            for id_ in (name, lora.hf_id, lora.hf_revision):
                if id_ is not None and not is_model_id(id_):
                    _refuse(f"`loras.{name}`: {short(id_)} is no id; allowed are {ID_RULE}")
        for name, profile in self.profiles.items():
            self._check_profile(name, profile)
        for fact in self.sources:
            _require(_stated(self, fact.split(".")), f"`sources.{fact}`: the config states no `{fact}`")
        return self

    def _check_profile(self, name: str, profile: ProfileFile) -> None:
        _require(is_profile_name(name), f"`profiles.{name}`: a profile's name is letters, digits and . _ -")
        if profile.extends is None:
            return
        parent = self.profiles.get(profile.extends)
        where = f"`profiles.{name}.extends` is"
        if parent is None:
            _refuse(f"{where} {short(profile.extends)}; the profiles are {', '.join(self.profiles)}")
        elif parent.extends is not None:
            _refuse(
                f"{where} {short(profile.extends)}, which itself extends {short(parent.extends)}; one level is allowed"
            )


def _stated(value: object, path: Sequence[str]) -> bool:
    """Whether a config states something at `path`, a field below a field."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else getattr(value, name, None)
    return value not in (None, [])


def _require(condition: object, message: str) -> None:
    if not condition:
        _refuse(message)


def _refuse(message: str) -> None:
    raise PydanticCustomError("config", "{message}", {"message": message})
