"""GPT-2 in three sizes, 124, 355 and 774 million parameters: transformers that predict each token of a text.

Radford et al.: Language Models are Unsupervised Multitask Learners, 2019, section 2.3. The sizes (n_embd, n_head,
n_layer) are those of the released models, openai/gpt-2, models/124M, 355M and 774M; the paper calls the first two 117M
and 345M. The output layer has the weights of the token embedding (src/model.py: ``tf.matmul(h_flat, wte,
transpose_b=True)``). Dropout is as in GPT, except inside the attention (see `transformer`).
"""

from __future__ import annotations

from torch import nn

from stallpoint.networks.layers import Classifier, Positions
from stallpoint.networks.transformer import TransformerBlock

VOCABULARY, LENGTH = 50257, 1024
DROPOUT = 0.1
EPSILON = 1e-5


def gpt2(width: int, heads: int, blocks: int, *, vocabulary: int = VOCABULARY, length: int = LENGTH) -> nn.Module:
    """Return the network for sequences of up to `length` tokens."""
    embedding = nn.Embedding(vocabulary, width)
    output = nn.Linear(width, vocabulary, bias=False)
    output.weight = embedding.weight
    return Classifier(
        embedding=embedding,
        positions=Positions(length, width),
        drop=nn.Dropout(DROPOUT),
        **{f"block{number}": _block(width, heads) for number in range(1, blocks + 1)},
        norm=nn.LayerNorm(width, EPSILON),
        output=output,
    )


def _block(width: int, heads: int) -> nn.Module:
    return TransformerBlock(width, heads, causal=True, dropout=DROPOUT, gelu_approximation="tanh", epsilon=EPSILON)
