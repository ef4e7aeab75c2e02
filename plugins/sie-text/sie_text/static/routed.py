"""A model of two routes: texts of one role are encoded, those of the other looked up, each through its `Adapter`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from sie_core.contracts import Adapter, Item, ItemOutput, ModelFacts, ModelLoadError, Task, Token, Unit
from sie_text.recipe import Role
from sie_text.static.lookup import LookupEncoder, LookupKey


class RoutedEncoder(Adapter):
    """Hands texts to the route of their kind; the key of a unit says which it went."""

    def __init__(self, lookup: LookupEncoder, encoder: Adapter, looked_up: frozenset[Role], default: Role) -> None:
        """Keep the routes.

        Raises:
            ModelLoadError: `CONFIG`: the routes have different vocabularies.
        """
        self._lookup = lookup
        self._encoder = encoder
        self._looked_up = looked_up
        self._default: Role = default
        ours, theirs = lookup.facts.dims["sparse"], encoder.facts.dims["sparse"]
        if ours != theirs:
            raise ModelLoadError("CONFIG", f"One route of the model has {ours} entries and the other {theirs}.")
        looked = " and ".join(sorted(looked_up))
        self.facts: ModelFacts = replace(
            encoder.facts,
            takes_lora=False,
            notes={**encoder.facts.notes, "routes": f"the weights of a {looked} are looked up, without a forward pass"},
        )

    def prepare(self, items: Sequence[Item], task: Task) -> Iterable[Unit]:
        """Have the route of `task` prepare its items."""
        return self._route(task.input_type or self._default).prepare(items, task)

    def passed_over(self, task: Task) -> tuple[str, ...]:
        """Ask the route of `task`."""
        return self._route(task.input_type or self._default).passed_over(task)

    def run(self, units: Sequence[Unit]) -> Any:
        """Run units of one route."""
        return self._of(units).run(units)

    def await_device(self, units: Sequence[Unit], raw: Any) -> bool:
        """Wait for the result of the units' route."""
        return self._of(units).await_device(units, raw)

    def finish(self, units: Sequence[Unit], raw: Any) -> Sequence[ItemOutput]:
        """Finish units of one route."""
        return self._of(units).finish(units, raw)

    def tokenize(self, texts: Sequence[str], *, special: bool, most: int | None = None) -> Sequence[Sequence[Token]]:
        """List the tokens of texts as the route that encodes sees them; the other adds no special ones.

        Raises:
            InvalidInput: A text is not Unicode.
        """
        return self._encoder.tokenize(texts, special=special, most=most)

    def decode(self, ids: Sequence[Sequence[int]], *, special: bool) -> Sequence[str]:
        """Write the texts of token ids by the tokenizer of the route that encodes.

        Raises:
            InvalidInput: The tokenizer has no such token.
        """
        return self._encoder.decode(ids, special=special)

    def unload(self) -> None:
        """Free the weights now."""
        self._encoder.unload()

    def _route(self, role: Role) -> Adapter:
        return self._lookup if role in self._looked_up else self._encoder

    def _of(self, units: Sequence[Unit]) -> Adapter:
        return self._lookup if isinstance(units[0].key, LookupKey) else self._encoder
