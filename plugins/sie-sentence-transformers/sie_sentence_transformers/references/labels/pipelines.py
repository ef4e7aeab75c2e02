"""Loads one of transformers' pipelines as a reference: the checkpoint's own class in float32."""

from __future__ import annotations

from typing import Any

import torch
import transformers as tf
from sie_text.tokenizer import obey_file

from sie_core.contracts import LoadContext, ModelInfo
from sie_sentence_transformers.references.words import refuse_other_class


def load_pipeline(context: LoadContext, served: ModelInfo, auto_class: Any, pipeline_class: Any) -> Any:
    """Load the class that the checkpoint names into a pipeline on the CPU.

    Raises:
        NoReferenceError: The server runs another class.
    """
    refuse_other_class(served)
    assert context.card is not None
    torch.set_num_threads(context.threads)
    folder = str(context.card.path)
    model = auto_class.from_pretrained(folder, local_files_only=True, use_safetensors=True, dtype=torch.float32)
    tokenizer = tf.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    obey_file(tokenizer)
    return pipeline_class(model=model.eval(), tokenizer=tokenizer, device="cpu")
