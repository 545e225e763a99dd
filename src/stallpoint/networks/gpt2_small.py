"""GPT-2 small, 124 million parameters: a transformer that predicts each token of a text from those before it.

Radford et al.: Language Models are Unsupervised Multitask Learners, 2019, section 2.3; sizes are those of the released
model (openai/gpt-2, models/124M: n_embd, n_head and n_layer), which the paper calls 117M. The output layer has the
weights of the token embedding (src/model.py: ``tf.matmul(h_flat, wte, transpose_b=True)``). Dropout is that of GPT,
whose architecture it keeps, but for the attention's own (see `transformer`).
"""

from __future__ import annotations

from torch import nn

from stallpoint.networks.layers import Classifier, Positions
from stallpoint.networks.transformer import Block

VOCABULARY, LENGTH = 50257, 1024
WIDTH, HEADS, BLOCKS = 768, 12, 12
DROPOUT = 0.1
EPSILON = 1e-5


def _block() -> nn.Module:
    return Block(WIDTH, HEADS, causal=True, dropout=DROPOUT, approximate="tanh", epsilon=EPSILON)


def gpt2_small() -> nn.Module:
    """The network for sequences of up to 1024 tokens."""
    embedding = nn.Embedding(VOCABULARY, WIDTH)
    output = nn.Linear(WIDTH, VOCABULARY, bias=False)
    output.weight = embedding.weight
    return Classifier(
        embedding=embedding,
        positions=Positions(LENGTH, WIDTH),
        drop=nn.Dropout(DROPOUT),
        **{f"block{number}": _block() for number in range(1, BLOCKS + 1)},
        norm=nn.LayerNorm(WIDTH, EPSILON),
        output=output,
    )
