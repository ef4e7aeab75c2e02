"""Finds the references of a model and asks them; each is loaded once."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pkgutil import resolve_name
from typing import Any

from packaging.requirements import Requirement

from sie_core.contracts import (
    Compared,
    Item,
    ItemOutput,
    LoadContext,
    ModelInfo,
    NoReferenceError,
    Reference,
    ReferenceModel,
    Task,
)
from sie_core.plugins.interfaces.signatures import UnfitObject, require
from sie_core.verification.differences import scores
from sie_core.verification.questions import Question

log = logging.getLogger(__name__)


@dataclass(slots=True)
class References:
    """The references of one model, loaded at their first use."""

    registered: Sequence[Reference]
    """References of the model's family, in the order in which they are asked."""
    context: LoadContext
    served: ModelInfo
    options: Mapping[str, Mapping[str, Any]]
    """The profile's options by operation: those of its family under `family`, those of the engine next to it."""
    _loaded: dict[str, ReferenceModel | NoReferenceError] = field(default_factory=dict)
    _said: dict[tuple[str, Question], Sequence[ItemOutput]] = field(default_factory=dict)

    def answer(self, question: Question, kind: Compared) -> tuple[str, Sequence[ItemOutput]]:
        """Have the first reference that computes `kind` answer; return its name too.

        Raises:
            NoReferenceError: No reference computes it; the message has the reasons of all.
        """
        wanted = question.by or kind
        reasons = []
        for reference in self.registered:
            if wanted not in reference.gives:
                continue
            try:
                model = self._load(reference)
                if wanted in model.gives:
                    key = reference.name, question
                    if key not in self._said:
                        self._said[key] = self._answers(reference, model, question, wanted)
                    return reference.name, self._said[key]
            except NoReferenceError as error:
                reasons.append(f"{reference.name} {error}")
        if not reasons:
            family = self.served.adapter
            reasons = [f"no plugin registers a reference for {wanted} of the family {family!r}; install sie-pytorch"]
        raise NoReferenceError("; ".join(reasons))

    def computes(self, kind: Compared) -> bool:
        """Whether a reference that can be loaded computes `kind` of this model."""
        return any(self._computes(reference, kind) for reference in self.registered)

    def _computes(self, reference: Reference, kind: Compared) -> bool:
        try:
            return kind in reference.gives and kind in self._load(reference).gives
        except NoReferenceError:
            return False

    def _answers(
        self, reference: Reference, model: ReferenceModel, question: Question, kind: Compared
    ) -> Sequence[ItemOutput]:
        """Ask a reference; an exception outside its contract counts as no answer.

        Raises:
            NoReferenceError: It cannot answer.
        """
        try:
            answers = list(self._ask(model, question, kind))
            if len(answers) != len(question.items):
                raise ValueError(f"{len(answers)} answers of {len(question.items)} items")
        except NoReferenceError:
            raise
        except Exception as error:
            log.exception("the reference %s cannot answer", reference.name)
            raise NoReferenceError(f"failed to answer ({type(error).__name__}: {_line(error)})") from error
        return answers

    def _ask(self, model: ReferenceModel, question: Question, kind: Compared) -> Sequence[ItemOutput]:
        if question.by is None:
            return model.answer(question.items, self._task(question))
        assert question.query is not None

        def encode(items: Sequence[Item], input_type: Any) -> Sequence[ItemOutput]:
            asked = Question("encode", tuple(items), (kind,), input_type)
            return model.answer(items, self._task(asked))

        return scores(encode, question.query, question.items, question.by, model.similarity)

    def _task(self, question: Question) -> Task:
        return question.task(**self.options[question.operation])

    def _load(self, reference: Reference) -> ReferenceModel:
        if reference.name not in self._loaded:
            try:
                self._loaded[reference.name] = _loaded(reference, self.context, self.served)
            except NoReferenceError as error:
                self._loaded[reference.name] = error
        found = self._loaded[reference.name]
        if isinstance(found, NoReferenceError):
            raise found
        return found


def _loaded(reference: Reference, context: LoadContext, served: ModelInfo) -> ReferenceModel:
    if lacking := [each for each in reference.requires if not _is_installed(each)]:
        raise NoReferenceError(f"is not installed: pip install {' '.join(map(repr, lacking))}")
    try:
        model = resolve_name(reference.target)
        require(model, ReferenceModel)
        found: ReferenceModel = model.load(context, served)
    except NoReferenceError:
        raise
    except ImportError as error:
        raise NoReferenceError(f"needs a package that is not installed: pip install {error.name}") from error
    except UnfitObject as error:
        raise NoReferenceError(f"does not fit this sie-core: {reference.target}: {error}") from error
    except Exception as error:  # a library may fail in any way at weights it does not understand
        log.exception("the reference %s cannot load %s", reference.name, context.model.id)
        raise NoReferenceError(f"cannot load the weights ({type(error).__name__}: {_line(error)})") from error
    return found


def _is_installed(requirement: str) -> bool:
    wanted = Requirement(requirement)
    try:
        return wanted.specifier.contains(version(wanted.name), prereleases=True)
    except PackageNotFoundError:
        return False


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
