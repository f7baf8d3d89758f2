"""A Hugging Face model as it is: a tiny BERT on sentences of unequal length, with attention masks.

    pip install transformers
    cd examples; raychains run --task sentences:make_task --epochs 40 --store runs

Sentences are strings of words that are made here: some are good, some bad, and `not` turns the word behind it round. A
sentence is positive (label 1) where good words outweigh bad ones. About half a minute on one core.
"""

import torch
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification

import raychains as rc

PAD, CLS, NOT, GOOD, BAD, WORDS = 0, 1, 2, range(3, 13), range(13, 23), 40
CONFIG = BertConfig(
    vocab_size=WORDS,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    max_position_embeddings=32,
    pad_token_id=PAD,
    num_labels=2,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)


def sentence(streams: torch.Generator) -> dict[str, list[int] | int]:
    """Token numbers, and the label."""
    while True:
        length = int(torch.randint(4, 13, (), generator=streams))
        words = torch.randint(NOT, WORDS, (length,), generator=streams).tolist()
        signs = [-1 if before == NOT else 1 for before in [PAD, *words]]
        score = sum(sign * ((word in GOOD) - (word in BAD)) for sign, word in zip(signs, words, strict=False))
        if score:
            return {"input_ids": [CLS, *words], "labels": int(score > 0)}


def collate(sentences: list[dict[str, list[int] | int]]) -> dict[str, Tensor]:
    """A batch as a tokenizer's `pad` makes it: padded to its longest sentence, and a mask."""
    ids = [torch.tensor(s["input_ids"]) for s in sentences]
    padded = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=PAD)
    labels = torch.tensor([s["labels"] for s in sentences])
    return {"input_ids": padded, "attention_mask": (padded != PAD).long(), "labels": labels}


def make_task(train: int = 600, test: int = 300) -> rc.Task:
    """The task; what BERT returns has `logits`, which the likelihood takes."""
    streams = torch.Generator().manual_seed(0)
    data = [sentence(streams) for _ in range(train + test)]
    return rc.Task.from_module(
        lambda: BertForSequenceClassification(CONFIG), data[:train], data[train:], collate_fn=collate, name="sentences"
    )
