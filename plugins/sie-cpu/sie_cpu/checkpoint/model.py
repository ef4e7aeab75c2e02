"""A model described by its files: the parts of its layers and of its embeddings, found by name in mapped files."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from sie_text.architectures import Feature, PreNorm
from sie_text.recipe import NotUnderstoodError

from sie_core.contracts import ModelCard, ModelLoadError
from sie_cpu.checkpoint.mapped import Floats, Tensor, read_tensors
from sie_cpu.checkpoint.settings import Settings, read_settings
from sie_cpu.packing import Dense, LayerParts, NormNumbers, Rows

IGNORED = ("position_ids", "token_type_ids", "rotary_emb.inv_freq")
"""Ends of the names of tensors that hold no weights."""


@dataclass(slots=True)
class Part:
    """A tensor, or one of the equal parts of its rows."""

    tensor: Tensor
    place: int = 0
    of: int = 1

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return (self.tensor.shape[0] // self.of, *self.tensor.shape[1:]) if self.of > 1 else self.tensor.shape

    def read(self, rows: slice = slice(None)) -> Floats:
        """Return its numbers, or those of some of its rows, in float32."""
        if self.of == 1:
            return self.tensor.read(rows)
        each = self.shape[0]
        first, last, _ = rows.indices(each)
        return self.tensor.read(slice(self.place * each + first, self.place * each + last))


@dataclass(slots=True)
class Described:
    """A model: its settings, and its tensors by their names below the model."""

    settings: Settings
    parts: dict[str, Part]
    used: set[str] = field(default_factory=set)

    @classmethod
    def read(cls, card: ModelCard, features: frozenset[Feature]) -> Described:
        """Read config and headers.

        Raises:
            NotUnderstoodError: It asks for something that is not computed here, or holds tensors of an unknown layout.
            ModelLoadError: `CORRUPT`: a file is damaged.
        """
        settings = read_settings(card, features)
        return cls(settings, _below(settings, read_tensors(card.path)))

    def find(self, name: str, *shape: int | None) -> Part:
        """Return a tensor by its name below the model.

        Args:
            name: Its name.
            shape: Its sizes; None for any.

        Raises:
            NotUnderstoodError: There is none.
            ModelLoadError: `CORRUPT`: it has other sizes.
        """
        part = self.parts.get(name)
        if part is None:
            raise NotUnderstoodError(f"its files hold no {name} for {self.settings.model_type}")
        self.used.add(name)
        sizes = part.shape
        if len(sizes) != len(shape) or any(size not in (None, given) for size, given in zip(shape, sizes, strict=True)):
            wanted = ", ".join("any" if size is None else str(size) for size in shape)
            tensor = part.tensor
            raise ModelLoadError(
                "CORRUPT",
                f"{tensor.name} in {tensor.file} has the shape {list(tensor.shape)}, and its config asks for "
                f"[{wanted}].",
            )
        return part

    def numbers(self, name: str, *shape: int | None) -> Floats:
        """Read a small tensor.

        Raises:
            NotUnderstoodError, ModelLoadError: As `find`; `CORRUPT` too if it holds NaN or infinity.
        """
        return _finite(self.find(name, *shape))

    def dense(self, name: str, outputs: int | None, inputs: int | None) -> Dense:
        """Find a linear layer."""
        weight = self.find(f"{name}.weight", outputs, inputs)
        bias = self.numbers(f"{name}.bias", weight.shape[0]) if self._has_bias(name) else None
        return Dense(Rows(weight.shape, lambda rows: _finite(weight, rows)), bias)

    def _has_bias(self, name: str) -> bool:
        """Whether a part has a bias: all do, or the same part of the first layer has one."""
        layers = f"{self.settings.row.layers}."
        inside = name.removeprefix(layers).partition(".")[2]
        first = f"{layers}0.{inside}" if name.startswith(layers) else name
        return self.settings.form.biased or f"{first}.bias" in self.parts

    def norm(self, name: str, size: int, *, rms: bool) -> NormNumbers:
        """Find a norm; of a record that counts its weights from one, they count from zero afterwards."""
        weight = self.numbers(f"{name}.weight", size)
        if rms and self.settings.row.norm == "rms from one":
            weight = weight + 1
        bias = None
        if not rms and self._has_bias(name):
            bias = self.numbers(f"{name}.bias", size)
        return NormNumbers(weight, bias, self.settings.epsilon)

    def layer(self, number: int) -> LayerParts:
        """Find the parts of a layer.

        Raises:
            NotUnderstoodError, ModelLoadError: As `find`.
        """
        settings, row = self.settings, self.settings.row
        below, hidden, rms = f"{row.layers}.{number}.", settings.hidden, row.norm != "layer"
        widths = [count * settings.head_size for count in (settings.heads, settings.key_heads, settings.key_heads)]
        if len(row.joined) == 1:
            widths = [sum(widths)]
        down = self.dense(below + row.down, hidden, None)
        inner = down.weight.shape[1]
        ups = inner * (1 + row.gated) // len(row.up)

        def norm(name: str | None, size: int = hidden, *, of_head: bool = False) -> NormNumbers | None:
            return None if name is None else self.norm(below + name, size, rms=rms or of_head)

        norms = row.norms
        pre = norms if isinstance(norms, PreNorm) else None
        attention = norm(norms.attention if pre is None else pre.feed_forward)
        output = norm(norms.output) if not isinstance(norms, PreNorm) else self._output_norm(number, norms, rms=rms)
        assert attention is not None
        assert output is not None
        return LayerParts(
            joined=[self.dense(below + name, width, hidden) for name, width in zip(row.joined, widths, strict=True)],
            attention_output=self.dense(below + row.attention_output, hidden, settings.heads * settings.head_size),
            up=[self.dense(below + name, ups, hidden) for name in row.up],
            down=down,
            attention=attention,
            output=output,
            post_attention=None if pre is None else norm(pre.post_attention_norm),
            post_mlp=None if pre is None else norm(pre.post_mlp_norm),
            query_norm=norm(row.query_norm, settings.head_size, of_head=True),
            key_norm=norm(row.key_norm, settings.head_size, of_head=True),
        )

    def before(self) -> NormNumbers | None:
        """Find the norm of the first layer's input; None for none."""
        norms, row = self.settings.row.norms, self.settings.row
        if not isinstance(norms, PreNorm):
            return None
        name = f"{row.layers}.0.{norms.attention}"
        if f"{name}.weight" not in self.parts:  # ModernBERT: its embeddings are normalised
            return None
        return self.norm(name, self.settings.hidden, rms=row.norm != "layer")

    def _output_norm(self, number: int, norms: PreNorm, *, rms: bool) -> NormNumbers:
        last = number + 1 == self.settings.count
        name = norms.final if last else f"{self.settings.row.layers}.{number + 1}.{norms.attention}"
        return self.norm(name, self.settings.hidden, rms=rms)

    def linear_shapes(self) -> dict[str, tuple[int, int]]:
        """List the linear layers of every layer: out and in, by dotted name below the model."""
        row = self.settings.row
        names = [f"{row.layers}.{number}.{part}" for number in range(self.settings.count) for part in row.linear]
        sizes = {name: self.parts[f"{name}.weight"].shape for name in names}
        return {name: (outputs, inputs) for name, (outputs, inputs) in sizes.items()}

    def release(self, number: int) -> None:
        """Give back the pages of a layer's weights."""
        below = f"{self.settings.row.layers}.{number}."
        for name, part in self.parts.items():
            if name.startswith(below):
                part.tensor.release()

    def require_all_used(self) -> None:
        """Refuse files with weights of the layers or of the embeddings that nothing reads.

        Raises:
            NotUnderstoodError: They hold some.
        """
        form, row = self.settings.form, self.settings.row
        embeddings = form.words.rpartition(".")[0]
        places = [f"{row.layers}.", *([f"{embeddings}."] if embeddings else [])]
        unread = sorted(
            name
            for name in self.parts.keys() - self.used
            if name.startswith(tuple(places)) and not name.endswith(IGNORED)
        )
        if unread:
            raise NotUnderstoodError(
                f"its files hold {', '.join(unread[:3])}, which {self.settings.model_type} does not have"
            )


def _finite(part: Part, rows: slice = slice(None)) -> Floats:
    found = part.read(rows)
    if not np.isfinite(found).all():
        raise ModelLoadError("CORRUPT", f"{part.tensor.name} in {part.tensor.file} holds NaN or infinity.")
    return found


def _below(settings: Settings, tensors: dict[str, Tensor]) -> dict[str, Part]:
    """Name tensors as the class does, below the model.

    Raises:
        NotUnderstoodError: No tensor is called as those of the model type are.
    """
    form, row = settings.form, settings.row
    named: dict[str, Part] = {}
    for name, tensor in tensors.items():
        whole = name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
        for part, called in form.renamed:
            whole = whole.replace(part, called)
        if whole != name and whole in tensors:  # a tied copy under another name: the class reads this one
            continue
        path, _, kind = whole.rpartition(".")
        source = next((each for each in form.split if path.endswith(f".{each}")), None)
        if source is None:
            named[whole] = Part(tensor)
            continue
        targets = form.split[source]
        if not tensor.shape or tensor.shape[0] % len(targets):
            raise ModelLoadError("CORRUPT", f"{tensor.name} in {tensor.file} has the shape {list(tensor.shape)}.")
        for place, target in enumerate(targets):
            named[f"{path.removesuffix(source)}{target}.{kind}"] = Part(tensor, place, len(targets))
    known = f"{row.layers}.0.{row.attention_output}.weight"
    prefixes = {name.removesuffix(known) for name in named if name.endswith(known)}
    fitting = sorted(prefix for prefix in prefixes if prefix == "" or (prefix.count(".") == 1 and prefix.endswith(".")))
    if not fitting:
        raise NotUnderstoodError(f"its files hold no {known}, as those of {settings.model_type} do")
    return {name.removeprefix(fitting[0]): part for name, part in named.items() if name.startswith(fitting[0])}
