"""In which numbers a job computes: single precision, or what a device has that is faster."""

from __future__ import annotations

import torch

NUMBERS = {"float32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16}
"""Type of the values that matrix products take, by the name of the precision."""


def allow_only(precision: str) -> None:
    """Let this process round products to TF32 if `precision` is ``tf32``; PyTorch's own default is yes and no."""
    allowed = precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


def forward_context(precision: str, device: torch.device) -> torch.autocast:
    """Around a forward pass: with ``bf16`` products take bfloat16; weights and gradients stay in single precision."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")
