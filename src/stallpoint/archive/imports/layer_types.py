"""What a layer does, by its name: trace files name layers and do not say their types.

The rules know Caffe's names (``inception_3a/relu_1x1``, ``bn2a_branch2a``, ``loss3/classifier``) and those of
stallpoint's own convolutional networks (``inception_3a.conv_1x1.conv``, ``layer1.0.bn2``).
"""

from __future__ import annotations

import re

_RULES = tuple(
    (re.compile(pattern), layer_type)
    for pattern, layer_type in (
        (r"relu", "relu"),
        (r"^drop|dropout", "dropout"),
        (r"(^|_)(bn|scale)|batch_?norm", "batch-norm"),
        (r"^(fc|ip)\d*(_|$)|^(fc|linear|classifier|inner_?product)", "fully-connected"),
        (r"conv|proj|branch|reduce|^\d+x\d+", "convolution"),
        (r"^pool|pool$", "pooling"),
        (r"norm|^lrn", "lrn"),
        (r"flatten", "flatten"),
        (r"concat|^output$|^join$", "concat"),
        (r"^add$|eltwise|^res\d+[a-z]\d*$", "add"),
        (r"loss|softmax|^prob$", "loss"),
    )
)
_MUST_LEARN = ("convolution", "fully-connected")
_CAN_LEARN = (*_MUST_LEARN, "batch-norm")
"""Caffe's batch normalisation leaves learning to a scale layer."""
OTHER = "other"


def layer_type(name: str, gradient_bytes: int) -> str:
    """Return the type of the layer `name`, by the last part of its name that has one; else ``other``."""
    for part in reversed(re.split(r"[/.]", name.lower())):
        for pattern, found in _RULES:
            fits = found in _CAN_LEARN if gradient_bytes else found not in _MUST_LEARN
            if fits and pattern.search(part):
                return found
    return OTHER
