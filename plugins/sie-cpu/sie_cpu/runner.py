"""The kernel runner of sie-pytorch: all layers of a described model in one call to compiled code.

It takes embeddings and rotary angles from the model's own modules, and the layers' weights by the record
of its type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import torch
from sie_pytorch.forward import (
    Batch,
    EncoderEntry,
    LayerNorms,
    LayerStack,
    LowRank,
    MappedFiles,
    RelativePositions,
    RunnerContext,
    RunnerUnfitError,
    plain_linear,
    weight_bytes,
)

from sie_cpu.entry import Entry
from sie_cpu.forward.batch import Floats
from sie_cpu.forward.encoder import KernelEncoder, PackedLowRank
from sie_cpu.kernels import kernels_for
from sie_cpu.packing import Dense, Factors, LayerParts, NormNumbers, Rows, UnfitError


class KernelRunner:
    """Runs the layers of a described model in the compiled kernels."""

    def __init__(self, context: RunnerContext) -> None:
        """Pack the weights of `context.model`.

        Raises:
            RunnerUnfitError: The model does not match its record, or no build of the kernels runs here.
        """
        model = context.model
        try:
            self._stack = stack = LayerStack(model, context.layers, context.features)
            kernels = kernels_for(str(context.dtype).removeprefix("torch."))
            self._positions = RelativePositions(model) if stack.row.disentangled else None
            self._entry = EncoderEntry(model, stack.row)
            if self._entry.projection is not None:  # everything before the layers is in float32
                replace(context, dtype=torch.float32).cast(self._entry.projection)
            self.linear_shapes = {**self._entry.linear_shapes, **stack.linear_shapes()}
            if self._positions is not None:
                self.linear_shapes |= self._positions.linear_shapes
            before = next(stack.norms()).before
            self._encoder = KernelEncoder(
                kernels,
                stack,
                model.config.hidden_size,
                _layers(stack, self._positions, context.mapped),
                None if before is None else norm_numbers(stack, before),
                angles=self._entry.angles_of(stack.kinds()),
                positions=None if self._positions is None else _Positions(self._positions),
                biases=None if stack.bias is None else stack.bias.by_distance.float().numpy(),
                threads=context.threads,
            )
        except (OSError, UnfitError) as error:
            raise RunnerUnfitError(str(error)) from error
        except AttributeError as error:
            raise RunnerUnfitError(f"its layers are not those of its record: {error}") from error
        self._enter = Entry(self._entry, model.config.hidden_size)
        self.notes = {"kernels": kernels.name}
        self.memory_bytes = weight_bytes(self._entry.embeddings) + self._encoder.memory_bytes

    def start_stopwatch(self) -> Callable[[], tuple[dict[str, float], float]]:
        """Time the kernels from now on; see `KernelEncoder.start_stopwatch`."""
        return self._encoder.start_stopwatch()

    def forward(self, batch: Batch) -> torch.Tensor:
        """Compute the last hidden states, in float32; see `Runner.forward`.

        Raises:
            MemoryError: No memory is left for the plan of the batch.
            RunnerUnfitError: Some tokens are no keys: DeBERTa's class does not support such tokens.
        """
        if batch.key_lengths is not None and self._positions is not None:
            raise RunnerUnfitError("it does not run tokens of DeBERTa that nothing attends to")
        entered = self._enter(batch)
        offsets = batch.cu_seqlens.to(torch.int64).contiguous().numpy()
        keys = None if batch.key_lengths is None else batch.key_lengths.to(torch.int64).contiguous().numpy()
        factors = None if batch.low_rank is None else self._packed(batch.low_rank)
        # The windows are read at every call: the proof at load narrows them temporarily.
        return torch.from_numpy(self._encoder.run(entered, offsets, keys, self._stack.windows(), factors))

    def pack_low_rank(self, low_rank: LowRank) -> int:
        """Pack factors ahead of the first batch with them; see `LowRankPacker`."""
        return self._packed(low_rank).nbytes

    def _packed(self, low_rank: LowRank) -> PackedLowRank:
        return self._encoder.packed(low_rank, self.linear_shapes, self._tables)

    def _tables(self, number: int, factors: Mapping[str, Factors]) -> tuple[Floats, Floats] | None:
        """Make the keys and queries of relative positions of a layer if `factors` change them."""
        if self._positions is None or factors.keys().isdisjoint(self._positions.names):
            return None
        keys, queries = self._positions.projected(self._stack.modules[number], factors)  # type: ignore[arg-type]
        return keys.numpy(), queries.numpy()


class _Positions:
    """Relative positions of PyTorch's model, as the packer reads them."""

    def __init__(self, positions: RelativePositions) -> None:
        self.count = len(positions.embeddings)
        self.distances = positions.distances


def _layers(stack: LayerStack, positions: RelativePositions | None, mapped: MappedFiles) -> Iterator[LayerParts]:
    """Yield the weights of each layer; the pages of a layer that are views of files go back once it is packed."""
    for module, norms in zip(stack.modules, stack.norms(), strict=True):
        parts = layer_parts(stack, module, norms)
        if positions is not None:
            keys, queries = positions.projected(module)
            parts = replace(parts, positions=(keys.numpy(), queries.numpy()))
        yield parts
        mapped.release(module.parameters())


def layer_parts(stack: LayerStack, module: torch.nn.Module, norms: LayerNorms) -> LayerParts:
    """Read the weights of a layer.

    Raises:
        RunnerUnfitError: A part is of another kind than the record says.
    """
    row = stack.row

    def dense(name: str) -> Dense:
        layer = plain_linear(module, name)
        return Dense(_rows(layer.weight.detach()), None if layer.bias is None else layer.bias.detach().float().numpy())

    def norm(found: torch.nn.Module | None) -> NormNumbers | None:
        return None if found is None else norm_numbers(stack, found)

    def head_norm(name: str | None) -> NormNumbers | None:
        return None if name is None else norm_numbers(stack, module.get_submodule(name), of_head=True)

    return LayerParts(
        joined=[dense(name) for name in row.joined],
        attention_output=dense(row.attention_output),
        up=[dense(name) for name in row.up],
        down=dense(row.down),
        attention=norm_numbers(stack, norms.attention),
        output=norm_numbers(stack, norms.output),
        post_attention=norm(norms.post_attention_norm),
        post_mlp=norm(norms.post_mlp_norm),
        query_norm=head_norm(row.query_norm),
        key_norm=head_norm(row.key_norm),
    )


def norm_numbers(stack: LayerStack, module: torch.nn.Module, *, of_head: bool = False) -> NormNumbers:
    """Read a norm.

    Raises:
        RunnerUnfitError: It is of another kind than the record says.
    """
    found = stack.numbers(module, of_head=of_head)
    bias = None if found.bias is None else found.bias.float().numpy()
    return NormNumbers(found.weight.float().numpy(), bias, found.epsilon)


def _rows(weight: torch.Tensor) -> Rows:
    return Rows(tuple(weight.shape), lambda rows: weight[rows].float().numpy())
