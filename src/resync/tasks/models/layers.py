"""Layers that several models offer as an option."""

from torch import nn

from resync.base.errors import UserError

ACTIVATIONS = {"relu": nn.ReLU, "silu": nn.SiLU}


def norm(kind: str, channels: int, groups: int) -> nn.Module:
    """BatchNorm (`kind` "batch") or GroupNorm ("group") over [batch, channels, height, width]."""
    if kind == "batch":
        return nn.BatchNorm2d(channels)
    if channels % groups:
        raise UserError(f"model: groups {groups} does not divide the width {channels}")
    return nn.GroupNorm(groups, channels)
