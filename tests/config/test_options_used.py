"""An option enters with the run, the paper or the page of documentation that needs it."""

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from resync.base.settings.options import option_names, options_of

ROOT = Path(__file__).parents[2]
WITHOUT_A_RUN = {
    "Douillard et al. 2023 and 2025: other outer optimizers, and the same for fragments":
        "StreamingDiLoCo.momentum",
    "Liu et al. 2024: their language models": "AsyncLocalSGD.optimizer_state",
    "Gu et al. 2024: the warm-up, in a training of one's own": "PowerRule.h_warmup",
    "Naganuma et al. 2025": "PALSGD.probability PALSGD.start PALSGD.strength",
    "Kolehmainen et al. 2025": "NoLoCo.lr NoLoCo.pull",
    "Iacob et al. 2025": "DESLOC.first_moment_period DESLOC.second_moment_period",
    "Defazio et al. 2025": "GPA.mu_x GPA.mu_y",
    "Jordan et al. 2024, MuLoCo and torch.optim": "Muon.beta1 Muon.beta2 Muon.momentum Muon.others_lr "
        "Muon.precision AdamW.beta1 AdamW.eps",
    "Gu et al. 2023: networks with GroupNorm": "CNN.groups CifarResNet.groups",
    "the guide to training tricks: its end": "EarlyStopping.min_delta",
    "docs/cluster.md": "Checkpoint.every_steps Resources.max_restarts Resources.timeout_seconds",
    "docs/concepts.md": "Evaluation.every_rounds Run.overrides",
    "GPUs: fp16": "ResultSettings.loss_scale",
}  # fmt: skip


def declared(model: type[BaseModel]) -> dict[str, str]:
    """The fields of a model, and each with the class that declares it: `OuterOptions.lr`."""
    classes = [each for each in reversed(model.__mro__) if issubclass(each, BaseModel)]
    first = {name: next(each for each in classes if name in each.model_fields) for name in model.model_fields}
    return {name: f"{owner.__name__}.{name}" for name, owner in first.items() if name not in ("name", "rule")}


def models(value: object) -> Iterator[BaseModel]:
    """Every group of settings in a value."""
    if isinstance(value, BaseModel):
        yield value
        value = [each for _, each in value]
    for each in value if isinstance(value, (list, tuple)) else ():
        yield from models(each)


def test_every_option_is_used_by_a_declared_run_or_item_or_listed(suite):
    runs = [run for found in suite.expanded.values() for run in found]
    items = [item.options for paper in suite.papers.values() for item in paper.items.values()]
    components = [
        options_of(room, name) for room in ("sync", "models", "optim", "render") for name in option_names(room)
    ]
    known = {key for each in components for key in declared(each).values()}
    used = set()
    for each in models([*runs, *(run.resources for run in runs), *items]):
        keys = declared(type(each))
        known |= set(keys.values())
        fields = type(each).model_fields
        used |= {
            key for name, key in keys.items()
            if fields[name].is_required()
            or getattr(each, name) != fields[name].get_default(call_default_factory=True)
        }  # fmt: skip
    listed = [key for keys in WITHOUT_A_RUN.values() for key in keys.split()]
    assert sorted(listed) == sorted(key for key in known - used if not key.startswith("data."))
    assert all((ROOT / page).is_file() for page in WITHOUT_A_RUN if page.endswith(".md"))
