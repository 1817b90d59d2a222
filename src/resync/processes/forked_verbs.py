"""The verbs that run in a fork of the warm process, and the modules that it imports for them."""

_OPTIONS = ("resync.sync.options.*", "resync.models.options", "resync.optim.options", "resync.render.options")
_TRAINING = (
    "torch._dynamo",  # torch's optimizers import it on first use
    "resync.launch.ranks",
    "resync.train",
    "resync.launch.attempts",
    *_OPTIONS,
    "resync.sync.*",
    "resync.models.*",
    "resync.optim.*",
    "resync.data.memory",
    "resync.data.sentences",
    "resync.train.bleu",
    "sacrebleu.tokenizers.tokenizer_13a",
    "sentencepiece",
    "torch.utils.serialization",  # torch.save does
    "wandb.sdk.launch.inputs.internal",  # wandb.init does
)
IMPORTS = {
    "launch": _TRAINING,
    "train": _TRAINING,
    "plan": (*_OPTIONS, "resync.models.*", "torch.utils.flop_counter", "torch._dynamo"),
    "collect": ("resync.results.collect", *_OPTIONS),
    "render": (
        *_OPTIONS,
        "resync.render.*",
        "pandas",
        "matplotlib.pyplot",
        "matplotlib.backends.backend_pdf",
        "fontTools.ttLib.tables.*",  # a PDF imports those of the tables in its fonts
        "PIL.PngImagePlugin",
        "PIL.JpegImagePlugin",
        "pyarrow.pandas_compat",
    ),
    "audit": ("resync.audit", "pandas", *_OPTIONS),
    "report": ("resync.report", "pandas", *_OPTIONS),
}
"""The verbs that run in a fork, and the modules imported before the first job of each; `.*`: all of a package."""
