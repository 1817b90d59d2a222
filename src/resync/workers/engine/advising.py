"""The times of computing and of exchanges in the last steps of a training loop."""

import torch

from resync.base.errors import UserError
from resync.workers.engine.transport import Transport
from resync.workers.formulas.advice import Advice


def advise(transport: Transport, num_bytes: int) -> Advice:
    """Advice from the steps that the transport knows of, for parameters of so many bytes; a collective call.

    Both times are those of the worker that computes longest, which waits for nobody. An exchange takes as long as its
    mean: messages of two processes may take turns in some steps, and travel at once in others. A step counts if it had
    exchanges of one kind only.

    Raises ValueError if there is one worker, or if there is no such step.
    """
    if transport.num_workers == 1:
        raise UserError("advise(): found one worker, which exchanges nothing, allowed: several")
    laps = transport.clocks.laps()
    if not any(bool(averaged) != bool(messaged) for averaged, messaged in (lap.counts for lap in laps)):
        raise UserError(f"advise(): found no average or message alone in the last {len(laps)} steps, without the first "
                        "one, allowed: a call at the end of a later round")  # fmt: skip
    own = [[lap.seconds - lap.communication, lap.communication, *lap.counts] for lap in laps]
    every = transport.gather(torch.tensor([own], dtype=torch.float64, device=transport.clocks.device))
    computing, slowest = every[..., 0].quantile(0.5, dim=1).max(0)
    _, waited, averaged, messaged = every[slowest].unbind(-1)
    average, message = (
        (waited * num_bytes * transport.num_workers / sent)[(sent > 0) & (others == 0)].mean().item()
        for sent, others in ((averaged, messaged), (messaged, averaged))
    )
    return Advice.on_a_ring(transport.num_workers, computing.item(), average, message)
