"""Messages of fewer bits: bfloat16, or int8 with one scale for every block of numbers, to nearest."""

from typing import Literal

import torch
from torch import Tensor

BLOCK = 256
"""Numbers that share a scale, the largest of their sizes over 127, as float32."""

Compression = Literal["bfloat16", "int8"]


def pack(rows: Tensor, compression: Compression) -> Tensor:
    """The messages [k, m] in bytes that stand for rows [k, n]: m is 2 n, or n + 4 ceil(n / BLOCK) for int8.

    A number of int8 is wrong by at most half its block's scale, one of bfloat16 by 2^-8 of its size. A block with a
    number that is not finite is NaN. A complex number is sent as two.
    """
    rows = _reals(rows)
    if compression == "bfloat16":
        return rows.bfloat16().view(torch.uint8)
    number, length = rows.shape
    blocks = rows.new_zeros(number, -(-length // BLOCK) * BLOCK, dtype=torch.float32)
    blocks[:, :length] = rows
    blocks = blocks.view(number, -1, BLOCK)
    scales = blocks.abs().amax(2, keepdim=True) / 127
    codes = (blocks / scales.where(scales != 0, 1)).round_().to(torch.int8).view(number, -1)[:, :length]
    return torch.cat([codes.view(torch.uint8), scales.view(number, -1).view(torch.uint8)], 1)


def unpack(message: Tensor, like: Tensor, compression: Compression) -> Tensor:
    """The numbers of a message [m] that stands for a row like `like` [n], in float32 or of two of these each."""
    length = _reals(like).numel()
    if compression == "bfloat16":
        numbers = message.view(torch.bfloat16).float()
    else:
        codes, scales = message[:length].view(torch.int8), message[length:].clone().view(torch.float32)
        numbers = codes.float().mul_(scales.repeat_interleave(BLOCK)[:length])
    return torch.view_as_complex(numbers.view(-1, 2)) if like.is_complex() else numbers


def _reals(numbers: Tensor) -> Tensor:
    """Numbers [..., n], of complex ones their real and imaginary parts in turn [..., 2n]."""
    return torch.view_as_real(numbers).flatten(-2) if numbers.is_complex() else numbers
