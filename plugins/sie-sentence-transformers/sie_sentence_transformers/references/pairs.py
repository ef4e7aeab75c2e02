"""Scores of pairs by sentence-transformers' CrossEncoder, and labels by transformers' zero-shot pipeline.

A pair written as one text by a template goes through transformers' own class, without either.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import transformers as tf
from numpy.typing import NDArray
from sentence_transformers import CrossEncoder
from sie_text.pairs import QWEN3_INSTRUCTION, QWEN3_RERANKER
from sie_text.tokenizer import obey_file
from transformers.pipelines import ZeroShotClassificationPipeline

from sie_core.contracts import (
    Classification,
    Compared,
    Item,
    ItemOutput,
    LoadContext,
    ModelInfo,
    ReferenceModel,
    Task,
)
from sie_sentence_transformers.references.words import limit_length, refuse_options, refuse_other_class
from sie_sentence_transformers.references.written_pairs import WrittenPairs
from sie_sentence_transformers.tokenizing import obey_files

SCORE_OPTIONS = frozenset(
    {"activation", "score_label", "template", "default_instruction", "pair_truncation", "max_seq_length"}
)
WRITTEN_OPTIONS = SCORE_OPTIONS | {"temperature"}
LABEL_OPTIONS = frozenset({"hypothesis_template", "multi_label"})


class Pairs(ReferenceModel):
    """A model of pairs that the two libraries load when it is first asked."""

    def __init__(self, context: LoadContext, served: ModelInfo) -> None:
        assert context.card is not None
        self._context = context
        self._folder = str(context.card.path)
        self._card = context.card
        self._served = served
        self._most = served.max_sequence_length
        labels: frozenset[Compared] = frozenset({"classifications"} if "extract" in served.operations else ())
        self.gives = labels | {"score"}

    @classmethod
    def load(cls, context: LoadContext, served: ModelInfo) -> Pairs:
        """Keep the files; the task decides which of them are loaded."""
        refuse_other_class(served)
        torch.set_num_threads(context.threads)
        return cls(context, served)

    def answer(self, items: Sequence[Item], task: Task) -> Sequence[ItemOutput]:
        """Score or classify each text separately.

        Raises:
            NoReferenceError: The profile has an option that the libraries do not do.
        """
        if task.operation == "extract":
            return self._classified(items, task)
        template, instruction = self._template(task)
        if template is None and not self._is_plain_language_model:
            refuse_options(task, SCORE_OPTIONS)
            scores = self._scores(items, task)
        else:
            refuse_options(task, WRITTEN_OPTIONS)
            pairs = WrittenPairs(self._context, template, instruction, self._most)
            scores = self._chosen(pairs.logits([item.text or "" for item in items], _query(task)), task, raw=True)
        return [ItemOutput(score=float(score)) for score in scores]

    def _template(self, task: Task) -> tuple[str | None, str]:
        """Find the template of a pair if no file of the model has one: the profile's, or Qwen3-Reranker's own."""
        given, instruction = task.options.get("template"), task.instruction or task.options.get("default_instruction")
        if given is None and self._is_plain_language_model and self._card.model_type == "qwen3":
            return QWEN3_RERANKER, instruction or QWEN3_INSTRUCTION
        return given, instruction or ""

    @property
    def _is_plain_language_model(self) -> bool:
        saved = self._card.architectures[0] if self._card.architectures else ""
        return not self._card.modules and saved.endswith("ForCausalLM")

    def _scores(self, items: Sequence[Item], task: Task) -> NDArray[Any]:
        library = CrossEncoder(
            self._folder,
            device="cpu",
            local_files_only=True,
            trust_remote_code=self._context.model.config.trust_remote_code,
            model_kwargs={"use_safetensors": True, "dtype": torch.float32},
        )
        obey_files(library)
        limit_length(library, self._context, self._served)
        text = {"truncation": task.options.get("pair_truncation"), "max_length": task.options.get("max_seq_length")}
        text = {name: value for name, value in text.items() if value is not None}
        arguments: dict[str, Any] = {"processing_kwargs": {"text": text}} if text else {}
        if task.instruction:
            arguments["prompt"] = f"{task.instruction} "
        found = library.predict(
            [(_query(task), item.text or "") for item in items],
            batch_size=1,
            show_progress_bar=False,
            activation_fn=_activation(task.options.get("activation")),
            apply_softmax=task.options.get("activation") == "softmax",
            **arguments,
        )
        return self._chosen(np.asarray(found), task)

    def _chosen(self, found: NDArray[Any], task: Task, *, raw: bool = False) -> NDArray[Any]:
        """Take the label that is the score; `raw` logits have their activation yet to come."""
        if raw:
            found = found / (task.options.get("temperature") or 1.0)
            name = task.options.get("activation") or ("sigmoid" if found.ndim == 1 else "identity")
            found = _softmax(found) if name == "softmax" else np.asarray(_activation(name)(torch.from_numpy(found)))
        if found.ndim == 1:
            return found
        names = [str(name) for name in (self._card.config.get("id2label") or {}).values()]
        wanted = task.options.get("score_label")
        entailing = [place for place, name in enumerate(names) if name.lower().startswith("entail")]
        column = names.index(wanted) if wanted else entailing[0] if entailing else found.shape[1] - 1
        chosen: NDArray[Any] = found[:, column]
        return chosen

    def _classified(self, items: Sequence[Item], task: Task) -> list[ItemOutput]:
        refuse_options(task, LABEL_OPTIONS)
        tokenizer = tf.AutoTokenizer.from_pretrained(self._folder, local_files_only=True)
        obey_file(tokenizer)
        if self._most is not None:
            tokenizer.model_max_length = min(tokenizer.model_max_length, self._most)
        model = tf.AutoModelForSequenceClassification.from_pretrained(
            self._folder, local_files_only=True, use_safetensors=True, dtype=torch.float32
        )
        pipeline = ZeroShotClassificationPipeline(model=model.eval(), tokenizer=tokenizer, device="cpu")
        asked = {name: value for name, value in task.options.items() if value is not None}
        found = [pipeline(item.text or "", candidate_labels=list(task.labels), **asked) for item in items]
        return [
            ItemOutput(classifications=tuple(map(Classification, each["labels"], map(float, each["scores"]))))
            for each in found
        ]


def _query(task: Task) -> str:
    assert task.query is not None
    return task.query.text or ""


def _activation(name: str | None) -> Any:
    if name is None:
        return None
    return torch.nn.Sigmoid() if name == "sigmoid" else torch.nn.Identity()


def _softmax(logits: NDArray[Any]) -> NDArray[Any]:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares: NDArray[Any] = powers / powers.sum(axis=1, keepdims=True)
    return shares
