"""resync: reproduction of papers on how often, and with whom, data-parallel workers synchronise.

Pure functions are in `resync.schedules`, `resync.periods`, `resync.topology`, `resync.mixing` and `resync.gossip`,
which are modules of `resync.formulas`. The algorithms for a training loop of your own are `resync.AllReduce`,
`resync.LocalSGD`, `resync.QSR`, `resync.SGP`, `resync.OSGP`, `resync.DPSGD`, `resync.ADPSGD`, `resync.SlowMo`,
`resync.DiLoCo`, `resync.StreamingDiLoCo`, `resync.SNOO`, `resync.GPA`, `resync.PALSGD`, `resync.DESLOC`,
`resync.NoLoCo`, `resync.Lookahead` and `resync.DiLoCoProgress`. All are imported on first use, and
torch only with an algorithm.
"""

# Written by `python -m resync.static`: change the declarations in src/resync/methods.py and src/resync/sync/options.
from collections.abc import Sequence
from typing import Any, Literal

from torch import nn
from torch.optim import Optimizer

from resync.attach import Synchronised as Synchronised
from resync.formulas import averaging as gossip
from resync.formulas import mixing as mixing
from resync.formulas import periods as periods
from resync.formulas import schedules as schedules
from resync.formulas import topology as topology
from resync.formulas.periods import Period

__all__ = ['ADPSGD', 'DESLOC', 'DPSGD', 'GPA', 'OSGP', 'PALSGD', 'QSR', 'SGP', 'SNOO', 'AllReduce', 'DiLoCo', 'DiLoCoProgress', 'LocalSGD', 'Lookahead', 'NoLoCo', 'SlowMo', 'StreamingDiLoCo', 'Synchronised', 'gossip', 'mixing', 'periods', 'schedules', 'topology']

def AllReduce(
    model: nn.Module,
    optimizer: Optimizer,
    *,
    average: Literal['gradients', 'parameters'] = 'gradients',
    all_reduce: Literal['default', 'ring', 'recursive_doubling'] = 'default',
    clip_norm: float | None = None,
) -> Synchronised:
    """Gradients or parameters averaged over all workers in every step (see resync.sync.allreduce).

    Sends an all-reduce of the gradients, or parameters, in every step.

    Args:
        average: gradients: before the optimizer step; parameters: after the step of every worker's own optimizer, like the
            baselines of the SGP paper (default: 'gradients')
        all_reduce: default: that of the communication library; ring, recursive_doubling: made of messages between two
            processes, each of which sends 2 (W - 1) messages of 1/W of a vector, or log2 W whole vectors (default:
            'default')
        clip_norm: largest L2 norm of the averaged gradient; clipping before `step()` would clip local gradients (default:
            None)

    The step (resync.sync.allreduce): Parallel SGD / AdamW: every step ends with the same parameters on all K workers.

        average gradients:    g = mean_k g_k(x);   x = optimizer(x, g)
        average parameters:   x = mean_k optimizer_k(x, g_k(x))

    The first is equivalent to large-batch training and to torch's DistributedDataParallel (Gu et al. 2024, Algorithm
    1); the engine may have averaged the gradients already, during the backward pass. The second leaves the optimizer's
    state with its worker. It is the baseline of Assran et al. (2019) in their code of May 2019, and the same as the
    first for SGD, also with momentum and weight decay, but not for Adam.
    """

def LocalSGD(
    model: nn.Module,
    optimizer: Optimizer,
    *,
    period: Period | int,
    average_state: Sequence[str] = (),
    total_steps: int | None = None,
    warmup_steps: int | None = None,
) -> Synchronised:
    """Parameters averaged after every round of local steps (see resync.sync.local and resync.periods).

    Sends an all-reduce of the parameters, and of each field in `average_state`, at the end of every round: 1/H of
    `AllReduce`.

    Args:
        period: rule for H, the number of local steps per round
        average_state: fields of the optimizer's state to average too, e.g. exp_avg; all others stay with their worker
            (default: ())
        total_steps: number of steps of the training, whose end truncates the last round; None: unknown (default: None)
        warmup_steps: number of warm-up steps of the learning rate; required where the period follows the learning rate
            (default: None)

    The step (resync.sync.local): Local OPT with a period rule (Gu et al. 2024, Algorithm 2; QSR is the power rule with power 2).

        for every round:
            H = period(lr of the round's first step)
            every worker: H optimizer steps on its own gradients
            x_k = mean over k of x_k

    H is fixed within a round, and the last round is truncated to end at `total_steps`. Optimizer state stays with its
    worker, except for the fields named in `average_state`. H follows from the learning rate that the round's first step
    used, so it is known only after that step.

    Raises ValueError at the first average if the optimizer does not have a named field.
    """

def QSR(
    model: nn.Module,
    optimizer: Optimizer,
    *,
    alpha: float,
    power: float = 2.0,
    h_base: int = 1,
    h_warmup: int | None = None,
    h_max: int | None = None,
    total_steps: int,
    warmup_steps: int,
    average_state: Sequence[str] = (),
) -> Synchronised:
    """Local SGD / AdamW with H = max(h_base, floor((alpha / lr)^power)) (see resync.sync.local).

    H is large where the learning rate is small, as also in a warm-up: rounds that start within `warmup_steps` have
    H = h_warmup. A first round after it that would last until the end raises ValueError.

    Sends an all-reduce of the parameters, and of each field in `average_state`, at the end of every round.

    Args:
        alpha: growth coefficient, in the unit of the learning rate
        power: 2 is QSR, 1 the linear rule, 3 the cubic rule (default: 2.0)
        h_base: smallest number of local steps in a round (default: 1)
        h_warmup: H of rounds that start during the warm-up; null: h_base (default: None)
        h_max: largest number of local steps; null: no limit (default: None)
        total_steps: number of steps of the training, whose end truncates the last round
        warmup_steps: number of warm-up steps of the learning rate; 0 without a warm-up
        average_state: fields of the optimizer's state to average too, e.g. exp_avg; all others stay with their worker
            (default: ())

    The step (resync.sync.local): Local OPT with a period rule (Gu et al. 2024, Algorithm 2; QSR is the power rule with power 2).

        for every round:
            H = period(lr of the round's first step)
            every worker: H optimizer steps on its own gradients
            x_k = mean over k of x_k

    H is fixed within a round, and the last round is truncated to end at `total_steps`. Optimizer state stays with its
    worker, except for the fields named in `average_state`. H follows from the learning rate that the round's first step
    used, so it is known only after that step.

    Raises ValueError at the first average if the optimizer does not have a named field.
    """

def SGP(
    model: nn.Module,
    optimizer: Optimizer,
    *,
    topology: Literal['symmetric_exponential', 'bipartite_exponential', 'linear', 'bipartite_linear', 'ring', 'exponential', 'directed_exponential', 'complete', 'cycle', 'random', 'random_exponential', 'hypercube', 'base_graph', 'simple_base_graph', 'd_equistatic', 'u_equistatic', 'od_equidyn', 'ou_equidyn', 'random_matching'] = 'exponential',
    peers: int | Sequence[tuple[float, int]] = 1,
    mixing_weights: Sequence[float] | None = None,
    average_state: Sequence[str] = (),
    seed: int = 0,
) -> Synchronised:
    """Synchronous push-sum gossip after every step (see resync.sync.sgp).

    Sends the parameters, and each field in `average_state`, to each of `peers` workers after every step.

    Args:
        topology: graph of the peers; exponential cycles through hops of 1, 2, 4, ... with one peer (topology 5 of the
            original code), directed_exponential with any number of peers; base_graph averages any number of workers exactly
            (default: 'exponential')
        peers: out-peers of a worker per mixing step, or [first epoch, peers] pairs; 0 peers: average over all workers
            (default: 1)
        mixing_weights: self weight, then the weight of each out-peer, with sum 1; null: equal weights (default: None)
        average_state: fields of the optimizer's state that travel with the parameters and are mixed like them, e.g.
            momentum_buffer; each is one more message per peer; all others stay with their worker (default: ())
        seed: seed of the algorithm's random numbers (default: 0)
    Options that mention epochs count in steps here.

    The step (resync.sync.sgp): Synchronous push-sum gossip: a step, then a mixing step (Assran et al. 2019, Algorithm 1).

        y_r = optimizer(x_r, g_r(z_r));   x_r = sum over s of M[r, s] y_s;   w_r likewise;   z_r = x_r / w_r

    M is the mixing matrix of this step. Every worker sends its row to its out-peers, which change from one mixing step
    to the next. The optimizer updates the numerators x; gradients are computed at the de-biased z, which `rows` are
    between two steps. If M is doubly stochastic, as on every regular topology with uniform weights, all push-sum
    weights w stay 1 and are not sent.

    The fields of the optimizer's state that `average_state` names travel with the parameters:

        m_r = sum over s of M[r, s] m_s

    With SGD's momentum this is the double averaging of Yu et al. (2019, "On the linear speedup analysis of
    communication efficient momentum SGD"), with gossip in place of an exact average as in Wang et al. (2020, section
    3). Momentum is a numerator like x, from which it is subtracted, so it has the weights of x and is never de-biased.

    Raises ValueError in the first step if the optimizer does not have a named field.
    """

def OSGP(
    model: nn.Module,
    optimizer: Optimizer,
    *,
    topology: Literal['symmetric_exponential', 'bipartite_exponential', 'linear', 'bipartite_linear', 'ring', 'exponential', 'directed_exponential', 'complete', 'cycle', 'random', 'random_exponential', 'hypercube', 'base_graph', 'simple_base_graph', 'd_equistatic', 'u_equistatic', 'od_equidyn', 'ou_equidyn', 'random_matching'] = 'exponential',
    peers: int | Sequence[tuple[float, int]] = 1,
    mixing_weights: Sequence[float] | None = None,
    staleness: int = 0,
    biased: bool = False,
    seed: int = 0,
) -> Synchronised:
    """Push-sum gossip that overlaps with the gradient computation (see resync.sync.osgp).

    Sends the parameters to each of `peers` workers, in every step with `staleness` 0, else when the last message
    has arrived.

    Args:
        topology: graph of the peers; exponential cycles through hops of 1, 2, 4, ... with one peer (topology 5 of the
            original code), directed_exponential with any number of peers; base_graph averages any number of workers exactly
            (default: 'exponential')
        peers: out-peers of a worker per mixing step, or [first epoch, peers] pairs; 0 peers: average over all workers
            (default: 1)
        mixing_weights: self weight, then the weight of each out-peer, with sum 1; null: equal weights (default: None)
        staleness: largest number of iterations by which a message may be late; 0: it travels while one gradient is
            computed, and one is sent in every iteration (tau = 1 in the paper); above 0: the lateness of each message is
            drawn from 0 to this number, and a worker sends the next one when it has arrived (default: 0)
        biased: ignore the push-sum weights, like the paper's biased variant (unverified: its definition); gradients and
            evaluations are at the shares that the workers keep, without what travels (default: False)
        seed: seed of the algorithm's random numbers (default: 0)
    Options that mention epochs count in steps here.

    The step (resync.sync.osgp): Push-sum gossip that overlaps communication with gradient computation (Assran et al. 2019, section 4).

    In iteration k, every worker r:

        x_r, w_r += the messages that have arrived;   z_r = x_r / w_r
        if no message of r travels: send (x_r, w_r), scaled by the mixing weights, to the out-peers of r's next mixing
            step, and keep the self weight's part
        x_r = optimizer(x_r, g_r(z_r))

    A message sent in iteration k arrives in iteration k + 1 + d. With `staleness` 0, which is tau = 1 of the paper (one
    gradient step while a message travels), d is 0 and every iteration sends. Above 0, each d is drawn from 0..staleness
    (resync.formulas.arrivals): as in the original code, a message is taken as soon as it is there, and the bound only
    bounds; unlike there, when it is there does not depend on the network, so that a run can be repeated.

    The order, receive then send then step, is that of the authors' later code, as is the full step on the numerator x.
    In the paper's Algorithm 2 (from memory, unverified) a worker steps, sends, and then receives.

    `biased` ignores the weights: gradients are computed at x, and the consensus is the mean of the x, both without what
    travels: a worker gives its share away, and receives, as it sends. That this is the paper's variant is unverified.
    """

def DPSGD(
    model: nn.Module,
    optimizer: Optimizer,
    *,
    topology: Literal['bipartite_exponential', 'bipartite_linear', 'ring', 'complete', 'hypercube', 'base_graph', 'simple_base_graph', 'u_equistatic', 'ou_equidyn', 'random_matching'] = 'bipartite_exponential',
    peers: int | Sequence[tuple[float, int]] = 1,
    half_duplex: bool = False,
    seed: int = 0,
) -> Synchronised:
    """Symmetric gossip after every step (see resync.sync.dpsgd).

    Sends the parameters to each of `peers` workers after every step.

    Args:
        topology: graph of the peers; ring needs 2 peers; base_graph averages any number of workers exactly (default:
            'bipartite_exponential')
        peers: peers of a worker per mixing step, or [first epoch, peers] pairs; 0 peers: average over all workers (default:
            1)
        half_duplex: the workers of a pair send one after the other, like those of the SGP paper: odd (active) ones send,
            then receive; even (passive) ones receive, then send (default: False)
        seed: seed of the algorithm's random numbers (default: 0)
    Options that mention epochs count in steps here.

    The step (resync.sync.dpsgd): Symmetric gossip: a step, then a mixing step (Lian et al. 2017, as compared in Assran et al. 2019).

        y_r = optimizer(x_r, g_r(x_r));   x_r = mean of y_r and of the y of its peers

    or the weighted mean, where a topology has weights of its own. Every worker receives from exactly the workers that
    it sends to, so the mixing matrix is symmetric and doubly stochastic and needs no push-sum weights. On a bipartite
    graph with one peer, mixing is the average of a pair. With `half_duplex`, odd workers send first and even ones
    answer, which takes twice as long and gives the same average.

    Raises ValueError for a topology that is not symmetric with this number of workers and peers.
    """

def ADPSGD(
    model: nn.Module,
    optimizer: Optimizer,
    *,
    topology: Literal['bipartite_exponential', 'bipartite_linear'] = 'bipartite_exponential',
) -> Synchronised:
    """Asynchronous pairwise averaging in a background thread; call `finish` at the end (resync.sync.adpsgd_threads).

    No two runs have the same bits. `state_dict` is a collective call.

    Sends the parameters to one worker per step, for which no worker waits.

    Args:
        topology: graph of the pairs; odd workers are active (ask), even ones passive (answer) (default:
            'bipartite_exponential')

    The step (resync.sync.adpsgd_threads): AD-PSGD (Lian et al. 2018): no worker waits for the gradient of another.

        training: compute a gradient at the worker's own parameters; x_r = optimizer(x_r, gradient)
        meanwhile: x_r = x_s = (x_r + x_s) / 2, once per step of the active (odd) worker of the pair

    Both partners add half of the difference of the rows that they exchanged, and a step adds what the optimizer has
    changed, whatever has happened in between, so that the sum over the workers is conserved. A step that ends while the
    previous average is still running is averaged together with the next. Every process hosts one worker; messages go
    over gloo and are staged on the CPU. The averages between two steps depend on the speed of the machines, so that no
    two runs have the same bits.

    `consensus`, `state_dict` and `close` are collective: the workers end their averages and meet. `close` ends the
    thread of this process when all of its partners have closed too. If a message of an average that has begun does not
    come within the time limit of the process group, the next of these calls or the next step fails and names the rank
    it was expected from. A request may come at any time, until `close` has waited for so long.

    Raises ValueError for several workers in a process, and for a topology without pairs.
    """

def SlowMo(
    model: nn.Module,
    optimizer: Optimizer,
    *,
    period: Period | int,
    alpha: float = 1.0,
    beta: float = 0.5,
    nesterov: bool = False,
    scale_by_lr: bool = True,
    average: bool = True,
    buffers: Literal['zero', 'keep', 'average'] = 'keep',
    base: Any | str = 'none',
    seed: int = 0,
    total_steps: int | None = None,
    warmup_steps: int | None = None,
) -> Synchronised:
    """Slow momentum on the average, with Local SGD or base="allreduce" / "sgp" / "osgp" (see resync.sync.slowmo).

    Sends an all-reduce of the parameters with `average`, and of every moment with buffers="average", at the end of
    every round, beside what `base` sends.

    Args:
        period: rule for H, the number of local steps per round
        alpha: outer learning rate (default: 1.0)
        beta: outer momentum (default: 0.5)
        nesterov: Nesterov form of the outer momentum (DiLoCo) (default: False)
        scale_by_lr: divide the change of a round by the learning rate of its last step before it enters the outer momentum,
            and multiply by it after; DiLoCo does not (default: True)
        average: average over the workers before the outer step (default: True)
        buffers: treatment of the inner optimizer's state before every round (default: 'keep')
        base: algorithm that communicates in every step of a round: none, its name, or its options (default: 'none')
        seed: seed of the algorithm's random numbers (default: 0)
        total_steps: number of steps of the training, whose end truncates the last round; None: unknown (default: None)
        warmup_steps: number of warm-up steps of the learning rate; required where the period follows the learning rate
            (default: None)

    The step (resync.sync.slowmo): Slow momentum around a base algorithm (Wang et al. 2020, Algorithm 1).

        for every round of H steps, which starts at x0:
            H steps of the base algorithm: without communication (Local SGD / Adam), or in every step with averaged
                gradients (all-reduce) or gossip (SGP, OSGP)
            x = mean over workers of x_k                         (with `average`)
            u = beta * u + (x0 - x) / gamma
            x = x0 - alpha * gamma * u                           (nesterov: (x0 - x) / gamma + beta * u for u)

    gamma is the learning rate of the round's last step, as in the authors' later implementation in fairscale (the paper
    has one learning rate per round), or of the last one that was not 0. It is 1 without `scale_by_lr`, and with beta 0,
    where it cancels. SlowMo is (alpha 1, beta 0.4-0.8); without scaling and with nesterov it is DiLoCo; Lookahead is
    beta 0 with one worker, or without `average` on all-reduce, which keeps the workers equal.
    With gossip, averaging receives the messages in flight, averages the numerators, and resets the weights to 1.
    Without `average`, every worker receives its messages and takes the outer step on its own de-biased parameters.
    `buffers` says what happens to the inner optimizer's state before every round: start anew (`zero`), keep it, or
    average it.
    """

def DiLoCo(
    model: nn.Module,
    optimizer: Optimizer,
    *,
    period: Period | int,
    lr: float = 0.7,
    momentum: float = 0.9,
    nesterov: bool = True,
    total_steps: int | None = None,
    warmup_steps: int | None = None,
) -> Synchronised:
    """Nesterov momentum on the averaged pseudo-gradient after every round (see resync.sync.diloco).

    Sends an all-reduce of the parameters at the end of every round: 1/H of `AllReduce`.

    Args:
        period: rule for H, the number of local steps per round
        lr: outer learning rate (default: 0.7)
        momentum: outer momentum (default: 0.9)
        nesterov: Nesterov's form of the outer momentum; false: heavy ball (default: True)
        total_steps: number of steps of the training, whose end truncates the last round; None: unknown (default: None)
        warmup_steps: number of warm-up steps of the learning rate; required where the period follows the learning rate
            (default: None)

    The step (resync.sync.diloco): Local steps and an outer optimizer (Douillard et al. 2023, Algorithm 1).

        for every round of H steps, which starts at x on every worker:
            every worker: H optimizer steps from x to x_k, on its own gradients
            D = x - mean over k of x_k
            b = momentum b + D;   x = x - lr (D + momentum b)

    The inner optimizer's state stays with its worker and is never reset. SlowMo with `nesterov` and without
    `scale_by_lr` has the same bits.
    """

def DiLoCoProgress(
    model: nn.Module,
    optimizer: Optimizer,
    *,
    period: Period | int,
    lr: float = 0.7,
    momentum: float = 0.9,
    nesterov: bool = True,
    reference: float,
    total_steps: int | None = None,
    warmup_steps: int | None = None,
) -> Synchronised:
    """DiLoCo corrected for rounds of unequal length, an ablation of our own (see resync.sync.diloco_progress).

    Sends what `DiLoCo` sends.

    Args:
        period: rule for H, the number of local steps per round
        lr: outer learning rate (default: 0.7)
        momentum: outer momentum (default: 0.9)
        nesterov: Nesterov's form of the outer momentum; false: heavy ball (default: True)
        reference: sum of the learning rates of the steps of a round whose outer step is that of DiLoCo, such as the
            smallest H times the largest learning rate
        total_steps: number of steps of the training, whose end truncates the last round; None: unknown (default: None)
        warmup_steps: number of warm-up steps of the learning rate; required where the period follows the learning rate
            (default: None)

    The step (resync.sync.diloco_progress): DiLoCo whose outer step is in units of progress p, so that a long round counts as several short ones.

        p = sum of the learning rates of the round's steps / reference
        D = (x - mean over k of x_k) / p
        b = momentum^p b + D;   x = x - lr p (D + momentum^p b)

    The buffer then holds a change per unit of progress, and forgets per unit of progress, whatever H is. p = 1 is
    DiLoCo. This is not a published method: it separates what QSR's long rounds do under an outer optimizer from what
    momentum and step size that ignore their length do.
    """

def SNOO(
    model: nn.Module,
    optimizer: Optimizer,
    *,
    period: Period | int,
    lr: float = 0.68,
    momentum: float = 0.37,
    nesterov: bool = True,
    at: Literal['end', 'start'] = 'end',
    clip_norm: float | None = None,
    total_steps: int | None = None,
    warmup_steps: int | None = None,
) -> Synchronised:
    """Nesterov momentum on what rounds of data-parallel steps have changed (see resync.sync.snoo).

    Sends an all-reduce of the gradients in every step, and nothing at the end of a round.

    Args:
        period: rule for H, the number of local steps per round
        lr: outer learning rate (default: 0.68)
        momentum: outer momentum (default: 0.37)
        nesterov: Nesterov's form of the outer momentum; false: heavy ball (default: True)
        at: when outer steps are taken: end, after steps H, 2 H, ... and the last step; start, after steps 1, H + 1, 2 H +
            1, ..., like the record of September 2025 of modded-nanogpt, whose counter starts at 0: the steps after the last
            of these stay without one (default: 'end')
        clip_norm: largest L2 norm of the averaged gradient; clipping before `step()` would clip local gradients (default:
            None)
        total_steps: number of steps of the training, whose end truncates the last round; None: unknown (default: None)
        warmup_steps: number of warm-up steps of the learning rate; required where the period follows the learning rate
            (default: None)

    The step (resync.sync.snoo): Step-K Nesterov outer optimizer (Kallusky et al. 2025, arXiv 2510.15830).

        for every round of H steps, which starts at x:
            H optimizer steps from x to w, on gradients averaged over all workers
            D = x - w
            b = momentum b + D;   x = x - lr (D + momentum b)

    Workers stay equal, so the outer step needs no message; with one worker there is none at all. The paper is about one
    worker; several are one replica with data parallelism, as in the record of modded-nanogpt. Evaluation is at w, the
    fast weights, also within a round. MuLoCo with one worker (Thérien et al. 2025) is SNOO with Muon inside, Lookahead
    (Zhang et al. 2019) is SNOO without momentum.
    """

def GPA(
    model: nn.Module,
    optimizer: Optimizer,
    *,
    mu_y: float = 0.7,
    mu_x: float = 0.9967,
    h: int | None = None,
    clip_norm: float | None = None,
) -> Synchronised:
    """Gradients between the optimizer's iterate and its average, which `consensus()` gives (see resync.sync.gpa).

    Sends an all-reduce of the gradients in every step.

    Args:
        mu_y: weight of the average in the point at which gradients are taken (default: 0.7)
        mu_x: weight of the previous average in the average (default: 0.9967)
        h: the H of the DiLoCo that is smoothed, from which mu_x = 0.9^(1/H) follows, as in the authors' table; null: mu_x
            itself (default: None)
        clip_norm: largest L2 norm of the averaged gradient; clipping before `step()` would clip local gradients (default:
            None)

    The step (resync.sync.gpa): Gradients at y, optimizer steps of z, evaluation at the average x (Defazio et al. 2025, arXiv 2512.17131).

        y = mu_y x + (1 - mu_y) z
        z = optimizer(z, g(y))
        x = mu_x x + (1 - mu_x) z

    g is averaged over all workers. x, z and y are equal at the start. As in the authors' code, y and z are stored, x is
    z + (y - z) / mu_y, and decoupled weight decay changes z alone before y is averaged with it:

        z = (1 - lr decay) z
        y = mu_x y + (1 - mu_x) z - lr (1 - mu_y mu_x) u;   z = z - lr u

    `rows` are y between two steps, and z while the optimizer steps.
    """

def PALSGD(
    model: nn.Module,
    optimizer: Optimizer,
    *,
    period: Period | int,
    lr: float = 0.1,
    momentum: float = 0.9,
    nesterov: bool = True,
    probability: float = 0.2,
    strength: float = 1.0,
    coins: Literal['own', 'common'] = 'own',
    start: float = 0.0,
    seed: int = 0,
    total_steps: int | None = None,
    warmup_steps: int | None = None,
) -> Synchronised:
    """DiLoCo whose workers are pulled to the last average at random steps (see resync.sync.palsgd).

    Sends an all-reduce of the gradients in every step before `start`, then what `DiLoCo` sends.

    Args:
        period: rule for H, the number of local steps per round
        lr: outer learning rate (default: 0.1)
        momentum: outer momentum (default: 0.9)
        nesterov: Nesterov's form of the outer momentum; false: heavy ball (default: True)
        probability: probability that a step is a pull to the last average instead of a gradient step (default: 0.2)
        strength: eta: on average, each step pulls by the fraction eta times the learning rate (default: 1.0)
        coins: who draws whether a step is a pull: own, each worker; common, all together, as in the authors' code, where
            all ranks have the same seed (default: 'own')
        start: epoch of the first local step; before it, gradients are averaged in every step (default: 0.0)
        seed: seed of the algorithm's random numbers (default: 0)
        total_steps: number of steps of the training, whose end truncates the last round; None: unknown (default: None)
        warmup_steps: number of warm-up steps of the learning rate; required where the period follows the learning rate
            (default: None)
    Options that mention epochs count in steps here.

    The step (resync.sync.palsgd): DiLoCo with random pulls (Naganuma et al. 2025, arXiv 2504.18454; x is the start of the round, as in DiLoCo).

        before step `start`: x_k = x = optimizer(x, mean over k of g_k(x))
        then every worker in every step, with a coin of its own:
            with probability p: x_k = x_k - (lr strength / p) (x_k - x), and the optimizer's state does not change
            else: an optimizer step with the learning rate lr / (1 - p)
        after every round of H steps: the outer step of DiLoCo

    The optimizer takes a step with lr, which is then made 1 / (1 - p) times as long: the same for every optimizer whose
    step is proportional to the learning rate. The gradient of a worker that is pulled has been computed, as its loss is
    logged, and is dropped. This is the rule, and not the authors' code, which pulls one tensor of the model only.
    """

def StreamingDiLoCo(
    model: nn.Module,
    optimizer: Optimizer,
    *,
    period: int,
    fragments: int,
    delay: int = 0,
    mixing: float = 0.0,
    lr: float = 0.7,
    momentum: float = 0.9,
    nesterov: bool = True,
    total_steps: int | None = None,
) -> Synchronised:
    """DiLoCo in fragments that take turns and travel during local steps (see resync.sync.streaming_diloco).

    Sends an all-reduce of one of `fragments` parts of the parameters every period / fragments steps.

    Args:
        period: local steps between two averages of a fragment, H; a multiple of fragments, one of which is averaged at the
            end of every round of period / fragments steps
        fragments: number of fragments, equal parts of the parameters
        delay: local steps that are computed while a fragment travels; less than period / fragments (default: 0)
        mixing: weight of a worker's own parameters when it takes over a fragment; 0: what it computed during the delay is
            lost; 1: it never takes over anything (default: 0.0)
        lr: outer learning rate (default: 0.7)
        momentum: outer momentum (default: 0.9)
        nesterov: Nesterov's form of the outer momentum; false: heavy ball (default: True)
        total_steps: number of steps of the training, whose end truncates the last round; None: unknown (default: None)

    The step (resync.sync.streaming_diloco): DiLoCo whose fragments take turns (Douillard et al. 2025; schedule and rule as in torchft and MaxText).

        for every round of s = H / F steps, and its fragment f (0, 1, ..., F - 1, 0, ...):
            s - delay steps of the optimizer
            send anchor - x_k on f, and take the other steps while the average D travels
            anchor = anchor - lr (D + momentum b), b = momentum b + D before, both on f     (outer_step_)
            x_k = (1 - mixing) anchor + mixing x_k on f

    Every fragment is sent once in H steps. A truncated last round sends its fragment as long before its end, but not
    before its first step. Evaluated is the mean of the x_k. Fragments are contiguous parts of equal size of the
    parameters in the order of the model, whereas the authors' consist of layers.

    Raises ValueError for more fragments than parameters.
    """

def DESLOC(
    model: nn.Module,
    optimizer: Optimizer,
    *,
    period: int,
    first_moment_period: int | None = None,
    second_moment_period: int | None = None,
    total_steps: int | None = None,
) -> Synchronised:
    """Adam's parameters and moments averaged with periods of their own (see resync.sync.desloc).

    Sends an all-reduce of the parameters in every period, and of each moment in every multiple that it has.

    Args:
        period: local steps between two averages of the parameters, Kx
        first_moment_period: local steps between two averages of Adam's first moments, Ku; null: 3 periods (default: None)
        second_moment_period: local steps between two averages of Adam's second moments, Kv; null: 6 periods (default: None)
        total_steps: number of steps of the training, whose end truncates the last round; None: unknown (default: None)

    The step (resync.sync.desloc): Desynced low-communication Adam (Iacob et al. 2025; the order within a step is ours).

        step t = 1, 2, ...:
            every worker: a step of its own Adam, with the gradient at its parameters of now
            x_k = mean over k of x_k   if t is a multiple of `period`, Kx
            u_k = mean over k of u_k   if t is a multiple of `first_moment_period`, Ku
            v_k = mean over k of v_k   if t is a multiple of `second_moment_period`, Kv

    The equations, read second-hand, average at the start of step t and leave open whether the gradient is that of
    before; here everything is averaged at the end of a step, so that the next gradient is at the averaged point. With
    equal periods it is Local Adam with averaged moments. Bias correction is that of the optimizer. The last round is
    truncated to end at `total_steps`, where the moments are averaged only if they are due.

    Where first moments are averaged more often than second ones, a parameter whose gradients have all been 0 at a
    worker gets a first moment u without a second one, and with it a step of up to lr u / eps: rare inputs need an `eps`
    above Adam's default.

    Raises ValueError at the first average of moments if the optimizer has no `exp_avg` and `exp_avg_sq`.
    """

def NoLoCo(
    model: nn.Module,
    optimizer: Optimizer,
    *,
    period: Period | int,
    lr: float = 0.7,
    momentum: float = 0.5,
    topology: Literal['random_matching', 'ou_equidyn', 'hypercube', 'base_graph', 'complete'] = 'random_matching',
    pull: float = 0.7,
    seed: int = 0,
    total_steps: int | None = None,
    warmup_steps: int | None = None,
) -> Synchronised:
    """An outer step on the averages of random pairs of workers after every round (see resync.sync.noloco).

    Sends two vectors of the length of the parameters at the end of every round: to one worker, or to all with the
    topology `complete`.

    Args:
        period: rule for H, the number of local steps per round
        lr: outer learning rate (default: 0.7)
        momentum: outer momentum (default: 0.5)
        topology: graph whose mixing steps average instead of pairs drawn at random; complete: over all workers (default:
            'random_matching')
        pull: weight with which a worker's anchor is pulled to the mean of the anchors of its pair (default: 0.7)
        seed: seed of the algorithm's random numbers (default: 0)
        total_steps: number of steps of the training, whose end truncates the last round; None: unknown (default: None)
        warmup_steps: number of warm-up steps of the learning rate; required where the period follows the learning rate
            (default: None)

    The step (resync.sync.noloco): Low-communication training by gossip of the outer step (Kolehmainen et al. 2025, as in their code).

        for every round of H local steps of worker k, which starts at its anchor x_k, and a new pair {k, j}:
            D = mean over the pair of w - x,   X = mean over the pair of x       (w: after the local steps)
            v_k = momentum v_k + lr D + pull (X - x_k);   x_k = x_k + v_k;   w_k = x_k

    Momentum v stays with its worker. This is heavy ball, as in the code, although the paper speaks of Nesterov. Pairs
    are entries i and i + n/2 of a permutation that all workers draw from the seed and the number of the round; of an
    odd number of workers, which the original does not have, one takes its step alone. Other `topology`s replace the
    means over pairs by their mixing steps. Random routing between pipeline stages, the paper's other part, is not here.
    """

def Lookahead(
    model: nn.Module,
    optimizer: Optimizer,
    *,
    total_steps: int | None = None,
    warmup_steps: int | None = None,
    period: Period | int,
    alpha: float = 0.5,
) -> Synchronised:
    """SlowMo without momentum: after every round, move the fraction `alpha` of the way (see resync.sync.slowmo).

    Lookahead is by Zhang et al. (2019).

    Sends an all-reduce of the parameters at the end of every round.

    Args:
        total_steps: number of steps of the training, whose end truncates the last round; None: unknown (default: None)
        warmup_steps: number of warm-up steps of the learning rate; required where the period follows the learning rate
            (default: None)
        period: local steps in a round, or a rule of resync.periods
        alpha: outer learning rate (default: 0.5)

    The step (resync.sync.slowmo): Slow momentum around a base algorithm (Wang et al. 2020, Algorithm 1).

        for every round of H steps, which starts at x0:
            H steps of the base algorithm: without communication (Local SGD / Adam), or in every step with averaged
                gradients (all-reduce) or gossip (SGP, OSGP)
            x = mean over workers of x_k                         (with `average`)
            u = beta * u + (x0 - x) / gamma
            x = x0 - alpha * gamma * u                           (nesterov: (x0 - x) / gamma + beta * u for u)

    gamma is the learning rate of the round's last step, as in the authors' later implementation in fairscale (the paper
    has one learning rate per round), or of the last one that was not 0. It is 1 without `scale_by_lr`, and with beta 0,
    where it cancels. SlowMo is (alpha 1, beta 0.4-0.8); without scaling and with nesterov it is DiLoCo; Lookahead is
    beta 0 with one worker, or without `average` on all-reduce, which keeps the workers equal.
    With gossip, averaging receives the messages in flight, averages the numerators, and resets the weights to 1.
    Without `average`, every worker receives its messages and takes the outer step on its own de-biased parameters.
    `buffers` says what happens to the inner optimizer's state before every round: start anew (`zero`), keep it, or
    average it.
    """
