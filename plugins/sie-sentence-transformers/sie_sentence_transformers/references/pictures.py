"""Vectors of texts and pictures: by transformers' own class and processors, or by sentence-transformers."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
import transformers as tf
from numpy.typing import NDArray
from PIL import Image
from sentence_transformers import SentenceTransformer
from sie_text.tokenizer import obey_file
from transformers.image_transforms import convert_to_rgb

from sie_core.contracts import Compared, Item, ItemOutput, LoadContext, ModelInfo, ReferenceModel, Task
from sie_sentence_transformers.references.words import limit_length, refuse_options, refuse_other_class, words_of
from sie_sentence_transformers.tokenizing import obey_files

OPTIONS = frozenset({"query_template", "doc_template", "default_instruction", "max_seq_length", "normalize"})

Vector = NDArray[np.float32]


class Library(Protocol):
    """Encodes one thing at a time."""

    def text(self, text: str, task: Task) -> Vector:
        """Encode a text with the words its task puts around it."""
        ...

    def image(self, image: Image.Image) -> Vector:
        """Encode a picture."""
        ...

    def similarity(self, query: Vector, document: Vector) -> float | None:
        """Compare two vectors; None if the library does not."""
        ...


class Pictures(ReferenceModel):
    """A model of texts and pictures, by the library whose layout its files have."""

    gives: frozenset[Compared] = frozenset({"dense"})

    def __init__(self, library: Library) -> None:
        self._library = library

    @classmethod
    def load(cls, context: LoadContext, served: ModelInfo) -> Pictures:
        """Load the model."""
        refuse_other_class(served)
        assert context.card is not None
        torch.set_num_threads(context.threads)
        return cls(Layout(context, served) if context.card.modules else Plain(context))

    def answer(self, items: Sequence[Item], task: Task) -> Sequence[ItemOutput]:
        """Encode each text or picture separately.

        Raises:
            NoReferenceError: The profile has an option that the library does not do.
        """
        refuse_options(task, OPTIONS)
        vectors = [self._vector(item, task) for item in items]
        if task.options.get("normalize"):
            vectors = [vector / np.linalg.norm(vector) for vector in vectors]
        return [ItemOutput(dense=vector) for vector in vectors]

    def similarity(self, query: ItemOutput, document: ItemOutput) -> float | None:
        """Compare two vectors as sentence-transformers does; transformers has no similarity."""
        return self._library.similarity(np.asarray(query.dense), np.asarray(document.dense))

    def _vector(self, item: Item, task: Task) -> Vector:
        if item.images:
            opened = Image.open(io.BytesIO(item.images[0].data))
            return self._library.image(Image.fromarray(convert_to_rgb(opened, return_numpy=True)))
        return self._library.text(item.text or "", task)


class Layout:
    """A model in one of sentence-transformers' layouts."""

    def __init__(self, context: LoadContext, served: ModelInfo) -> None:
        assert context.card is not None
        arguments = {"use_safetensors": True, "dtype": torch.float32}
        self._library = SentenceTransformer(
            str(context.card.path), device="cpu", local_files_only=True, model_kwargs=arguments
        )
        obey_files(self._library)
        if context.model.config.max_sequence_length:
            limit_length(self._library, context, served)

    def text(self, text: str, task: Task) -> Vector:
        """Encode a text as a query, a document or neither."""
        words = words_of(task)
        calls = {"query": self._library.encode_query, "document": self._library.encode_document}
        call = calls.get(str(task.input_type), self._library.encode)
        vector: Vector = call([text + words.suffix], show_progress_bar=False, **words.arguments)[0]
        return vector

    def image(self, image: Image.Image) -> Vector:
        """Encode a picture."""
        vector: Vector = self._library.encode([image], show_progress_bar=False)[0]
        return vector

    def similarity(self, query: Vector, document: Vector) -> float:
        """Compare two vectors."""
        return float(self._library.similarity(query[None], document[None])[0, 0])


class Plain:
    """A checkpoint of transformers."""

    def __init__(self, context: LoadContext) -> None:
        assert context.card is not None
        folder = str(context.card.path)
        model = tf.AutoModel.from_pretrained(folder, local_files_only=True, use_safetensors=True, dtype=torch.float32)
        self._model: Any = model.eval()
        self._tokenizer = tf.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        obey_file(self._tokenizer)
        self._processor = tf.AutoImageProcessor.from_pretrained(folder, local_files_only=True, backend="pil")
        positions = int(self._model.config.text_config.max_position_embeddings)
        self._length = min(positions, context.model.config.max_sequence_length or positions)

    @torch.inference_mode()
    def text(self, text: str, task: Task) -> Vector:
        """Encode a text; SigLIP was trained on texts filled up to the full length."""
        words = words_of(task)
        padding = "max_length" if self._model.config.model_type == "siglip" else False
        inputs = self._tokenizer(
            [f"{words.prompt or ''}{text}{words.suffix}"],
            padding=padding,
            truncation=True,
            max_length=words.max_length or self._length,
            return_tensors="pt",
        )
        vector: Vector = self._model.get_text_features(**inputs).pooler_output[0].numpy()
        return vector

    @torch.inference_mode()
    def image(self, image: Image.Image) -> Vector:
        """Encode a picture."""
        inputs = self._processor([image], return_tensors="pt")
        vector: Vector = self._model.get_image_features(**inputs).pooler_output[0].numpy()
        return vector

    def similarity(self, query: Vector, document: Vector) -> None:
        """Return None: transformers does not define a similarity."""
