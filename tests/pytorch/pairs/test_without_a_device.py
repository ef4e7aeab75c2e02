"""A class's own head on tensors without contents: any look at a value, which waits for a real device, fails."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
import transformers as tf
from sie_pytorch.heads.own_class.class_head import GATHERINGS, ClassHead, Gathering
from sie_text.heads import Index, find_spans

from tests.pytorch.models import ENCODER, HIDDEN

META = torch.device("meta")


def upload(arrays: Sequence[Index]) -> list[torch.Tensor]:
    return [torch.from_numpy(array).to(META) for array in arrays]


@pytest.mark.parametrize("gathering", GATHERINGS)
@torch.inference_mode()
def test_logits_of_pairs_never_wait_for_the_device(gathering: Gathering) -> None:
    model = tf.BertForSequenceClassification(tf.BertConfig(**ENCODER, num_labels=3)).eval()
    spans = find_spans(np.array([0, 300, 307, 340]), np.zeros(3, np.int64), upload)
    logits = ClassHead(model, gathering, 3).to(META)(torch.empty(340, HIDDEN, device=META), spans)
    assert logits.shape == (3, 3)
