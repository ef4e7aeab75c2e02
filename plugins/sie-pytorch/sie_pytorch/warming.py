"""The first run of a loaded encoder, as its profile asks for it. It knows no more of the encoder than its contract."""

from __future__ import annotations

from sie_core.contracts import Adapter, InvalidInput, Item, LoadContext, ModelLoadError, Task


def warm_up(adapter: Adapter, context: LoadContext) -> int:
    """Run one text through everything, so that the first request finds all in place; return how many dims it gives.

    Raises:
        ModelLoadError: `CONFIG`: the profile's options cannot be served; names the option.
    """
    options = context.model.profile.runtime
    item = Item(text="warm")
    try:
        for input_type in ("query", None):
            units = adapter.prepare([item], Task("encode", ("dense",), input_type=input_type, options=options))
    except InvalidInput as error:
        problem = error.message.replace("options.", "runtime.", 1)
        raise ModelLoadError("CONFIG", f"Profile {context.model.profile.name!r}: {problem}") from None
    (output,) = adapter.finish(units, adapter.run(units))
    assert output.dense is not None
    return len(output.dense)
