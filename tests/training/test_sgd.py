"""SGD over the rows of simulated workers, which may begin at different times."""

import pytest
import torch
from torch import nn

from resync.workers.optim.options import SGD
from resync.workers.optim.sgd import build


@pytest.mark.parametrize("nesterov", [False, True])
def test_a_worker_may_take_its_first_step_after_the_others(nesterov: bool):
    """Each parameter follows torch's own SGD for it alone, without the steps in which it has no gradient."""
    generator = torch.Generator().manual_seed(0)
    starts = torch.randn(3, 5, generator=generator)
    ours, alone = ([nn.Parameter(start.clone()) for start in starts] for _ in range(2))
    optimizer = build(ours, SGD(momentum=0.9, nesterov=nesterov, weight_decay=0.01))
    optimizers = [
        torch.optim.SGD([one], lr=0.1, momentum=0.9, nesterov=nesterov, weight_decay=0.01, foreach=False)
        for one in alone
    ]
    optimizer.param_groups[0]["lr"] = 0.1
    for stepping in ([1], [0, 1], [1], [0, 1, 2], [2]):
        for index, (one, other) in enumerate(zip(ours, alone, strict=True)):
            one.grad = torch.randn(5, generator=generator) if index in stepping else None
            if one.grad is not None:
                other.grad = one.grad.clone()
                optimizers[index].step()
        optimizer.step()
    for one, other in zip(ours, alone, strict=True):
        torch.testing.assert_close(one, other)


def test_a_step_has_the_bits_of_torchs_fused_one_and_calls_hooks_before_it():
    generator = torch.Generator().manual_seed(0)
    ours, theirs = (nn.Parameter(torch.linspace(-1, 1, 33).repeat(2, 1)) for _ in range(2))
    optimizer = build([ours], SGD(momentum=0.9, nesterov=True, weight_decay=0.01))
    torchs = torch.optim.SGD([theirs], momentum=0.9, nesterov=True, weight_decay=0.01, fused=True)
    seen = []
    optimizer.register_step_pre_hook(lambda *_: seen.append(len(seen)))
    for lr in (0.1, 0.2, 0.05):
        ours.grad = torch.randn(2, 33, generator=generator)
        theirs.grad = ours.grad.clone()
        optimizer.param_groups[0]["lr"] = torchs.param_groups[0]["lr"] = lr
        optimizer.step()
        torchs.step()
        assert torch.equal(ours, theirs)
    assert seen == [0, 1, 2]
