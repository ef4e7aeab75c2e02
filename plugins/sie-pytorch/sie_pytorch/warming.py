"""The first run of a loaded encoder, as its profile asks for it. It knows no more of the encoder than its contract."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sie_core.contracts import Adapter, InvalidInput, Item, ItemOutput, LoadContext, ModelLoadError, OutputType, Task


def profile_options(context: LoadContext) -> dict[str, Any]:
    """Give the options of the model's profile; one that it unsets, by null, is as little there as in a request."""
    return {name: value for name, value in context.model.profile.runtime.items() if value is not None}


def warm_up(
    adapter: Adapter, context: LoadContext, outputs: Sequence[OutputType] = ("dense",)
) -> dict[OutputType, int]:
    """Run one text through everything, so that the first request finds all in place; return how many dims each has.

    Raises:
        ModelLoadError: `CONFIG`: the profile's options cannot be served; names the option.
    """
    options = profile_options(context)
    item = Item(text="warm")
    try:
        for input_type in ("query", None):
            task = Task("encode", tuple(outputs), input_type=input_type, options=options)
            units = adapter.prepare([item], task)
    except InvalidInput as error:
        problem = error.message.replace("options.", "runtime.", 1)
        raise ModelLoadError("CONFIG", f"Profile {context.model.profile.name!r}: {problem}") from None
    (output,) = adapter.finish(units, adapter.run(units))
    return {name: _dims(output, name) for name in outputs}


def _dims(output: ItemOutput, name: OutputType) -> int:
    if name == "sparse":
        assert output.sparse is not None
        assert output.sparse.dims is not None
        return output.sparse.dims
    vectors = output.dense if name == "dense" else output.multivector
    assert vectors is not None
    return int(vectors.shape[-1])
