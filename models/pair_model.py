"""The cross-encoder as torch computes it: BERT over both texts, and what is read off its output."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification

# A new classifier begins as the cosine of the two texts' means, stretched to usual logits. With the
# weights of the bundled embedder it is 0.80 on average, 0.05 its deviation, where a request of
# skill-triggers and one of its six nearest skills read each other.
STEEPNESS = 20.0
MIDDLE = 0.8


class PairModel(BertForSequenceClassification):  # type: ignore[misc]
    """BERT with a classifier over the pooled first token and over what both texts have in common.

    A classifier over the first token alone would have to learn anew how alike two texts are, which
    the embedder that training starts from already knows.
    """

    def __init__(self, config: BertConfig) -> None:
        """Makes the model with random weights and a classifier that begins as a cosine."""
        config.num_labels = 1
        super().__init__(config)
        width = config.hidden_size
        self.classifier = torch.nn.Linear(2 * width, 1)
        with torch.no_grad():
            self.classifier.weight[:, :width] = 0
            self.classifier.weight[:, width:] = STEEPNESS / width
            self.classifier.bias.fill_(-STEEPNESS * MIDDLE)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        """Returns the logits, float [batch], of int64 token ids, mask and types [batch, tokens]."""
        found = self.bert(
            input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
        )
        hidden = found.last_hidden_state
        second = (attention_mask * token_type_ids).to(hidden.dtype).unsqueeze(1)
        first = attention_mask.to(hidden.dtype).unsqueeze(1) - second
        common = _direction(first @ hidden) * _direction(second @ hidden)
        return self.classifier(torch.cat([found.pooler_output, common], 1))[:, 0]


def _direction(sums: Tensor) -> Tensor:
    """Returns [batch, width] from sums [batch, 1, width], scaled to a mean square of 1."""
    return torch.nn.functional.normalize(sums[:, 0], dim=-1) * sums.shape[-1] ** 0.5
