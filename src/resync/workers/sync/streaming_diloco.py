"""Streaming DiLoCo: an outer optimizer that averages a fragment of the parameters at a time, during local steps."""

from typing import Any

import torch

from resync.base.errors import UserError
from resync.workers.engine.transport import PackedMean, PostedMean
from resync.workers.engine.workers import trainable
from resync.workers.sync.algorithm import Rounds, Training
from resync.workers.sync.options import outer
from resync.workers.sync.outer import on_device, outer_step_


class StreamingDiLoCoAlgorithm(Rounds):
    """DiLoCo whose fragments take turns (Douillard et al. 2025; schedule and rule as in torchft and MaxText).

        for every round of s = H / F steps, and its fragment f (0, 1, ..., F - 1, 0, ...):
            s - delay steps of the optimizer
            send anchor - x_k on f, and take the other steps while the average D travels
            anchor = anchor - lr (D + momentum b), b = momentum b + D before, both on f     (outer_step_)
            x_k = (1 - mixing) anchor + mixing x_k on f

    Every fragment is sent once in H steps. With first="period" the first F - 1 rounds send nothing: every fragment has
    made H steps before its first average, as in the paper (algorithm 2, which counts them until it is sent). A
    truncated last round sends its fragment as long before its end, but not before its first step. Evaluated is the mean
    of the x_k. Fragments are contiguous parts of equal size of the parameters in the order of the model, whereas the
    authors' consist of layers.

    Raises ValueError for more fragments than parameters.
    """

    shared = ("anchor", "buffer")

    def __init__(self, training: Training, options: outer.StreamingDiLoCo) -> None:
        super().__init__(training, options.rule)
        self.options = options
        size = sum(parameter.numel() for parameter in trainable(self.workers.models[0]))
        number = options.fragments
        if number > size:
            raise UserError(f"fragments: found {number}, allowed: at most the {size} parameters of the model")
        self.fragments = self.workers.fragments(number)
        self.anchor = training.keep(self.rows[0])
        self.buffer = training.keep(torch.zeros_like(self.rows[0]))
        longest = max(part.stop - part.start for part in self.fragments)
        self.sent = self.rows.new_zeros(len(self.rows), longest)
        self.in_flight: PostedMean | PackedMean | None = None

    def after_step(self, lr: float) -> bool:
        """Send the fragment when so many steps are left as the delay has, and take it over at the end of the round."""
        ended = super().after_step(lr)
        if not ended and self.local_steps == self._sent_after and not self._waits:
            self._send()
        return ended

    @torch.no_grad()
    def end_round(self) -> None:
        if self._waits:
            return
        if self.in_flight is None:
            self._send()
        mean, part, given = self._receive(), self._fragment, self.options
        with on_device(self.rows.device, self.anchor[part], self.buffer[part]) as (anchor, buffer):
            outer_step_(anchor, buffer, mean, lr=given.lr, momentum=given.momentum, nesterov=True)
            self.rows[:, part].lerp_(anchor, 1 - given.mixing)

    @property
    def _waits(self) -> bool:
        """Whether this round is one of those before the first average."""
        return self.rounds < self.options.rounds_without

    @property
    def _fragment(self) -> slice:
        return self.fragments[(self.rounds - self.options.rounds_without) % len(self.fragments)]

    @property
    def _sent_after(self) -> int:
        """The local step of this round after which its fragment is sent."""
        return max(1, self.h - self.options.delay)

    @torch.no_grad()
    def _send(self) -> None:
        part = self._fragment
        anchor = self.anchor[part].to(self.rows.device)
        torch.sub(anchor, self.rows[:, part], out=self.sent[:, : part.stop - part.start])
        self._post()

    def _post(self) -> None:
        part = self._fragment
        self.in_flight = self.transport.post_mean(self.sent[:, : part.stop - part.start], self.options.compression)

    def _receive(self) -> torch.Tensor:
        assert self.in_flight is not None
        mean, self.in_flight = self.in_flight.wait(), None
        return mean

    def close(self) -> None:
        """Receive what still travels, for which there will be no end of a round."""
        if self.in_flight is not None:
            self._receive()

    def state_dict(self) -> dict[str, Any]:
        """The declared attributes, and rows with what has been sent of the fragment in flight."""
        sent, part = torch.zeros_like(self.rows), self._fragment
        sent[:, part] = self.sent[:, : part.stop - part.start]
        state = super().state_dict()
        return state | {"workers": state["workers"] | {"sent": sent}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned; a fragment in flight is sent again, without being counted again."""
        self.close()
        super().load_state_dict(state)
        part = self._fragment
        self.sent[:, : part.stop - part.start] = state["workers"]["sent"][:, part]
        if self.local_steps >= self._sent_after and not self._waits:
            with self.transport.uncounted():
                self._post()


build = StreamingDiLoCoAlgorithm
