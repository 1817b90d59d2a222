"""The command line: every verb is one call."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from resync.config import ConfigError, Run, Suite, load_suite
from resync.config.parts import ModelOptions
from resync.config.run import SCALES, Resources
from resync.files import write_text
from resync.plan.network import ALL_REDUCES, LINKS, Network


def main(arguments: list[str] | None = None) -> int:
    """Run one verb; returns the exit code.

    0; 1 for a check or process that failed; 2 for a mistake of the user; 75 (EX_TEMPFAIL) for a run that was asked to
    stop and continues when it is started again.
    """
    options = _parser().parse_args(arguments)
    try:
        return options.verb(options) or 0
    except ConfigError as error:
        lines = list(error.lines)
    except ConnectionError as error:
        print(f"resync: error: {error}", file=sys.stderr)
        return 1
    except (ValueError, OSError) as error:
        lines = [str(error)]
    except KeyboardInterrupt:
        print("resync: interrupted", file=sys.stderr)
        return 130
    for line in lines:
        print(f"resync: error: {line}", file=sys.stderr)
    return 2


def _validate(options: argparse.Namespace) -> None:
    suite = load_suite(options.configs)
    for paper in suite.papers.values():
        runs = ", ".join(f"{len(suite.runs(paper.id, scale))} at {scale}" for scale in SCALES)
        print(f"{paper.id}: {len(paper.experiments)} experiments, runs: {runs}")


def _expand(options: argparse.Namespace) -> None:
    runs = _suite_of(options).runs(options.paper, options.scale)
    if options.json:
        print(json.dumps([_described(run) for run in runs], indent=2))
    else:
        for run in runs:
            print(run.id)


def _described(run: Run) -> dict[str, object]:
    """A run as `expand --json` lists it: its configuration, and what is derived from it."""
    derived = {
        "id": run.id,
        "directory": str(run.directory),
        "config_hash": run.hash,
        "label": run.label,
        "total_steps": run.total_steps,
        "warmup_steps": run.warmup_steps,
        "local_batch_size": run.local_batch_size,
        "resources": run.resources.model_dump(),
    }
    return derived | run.model_dump(mode="json")


def _plan(options: argparse.Namespace) -> None:
    from resync.models import flops_per_sample, num_parameters
    from resync.plan import cost, table, table_of_totals, totals

    suite, size, flops_of_input = _suite_of(options), _of_model(num_parameters), _of_model(flops_per_sample)

    def flops(run: Run) -> int:
        return round(flops_of_input(run) * run.inputs_per_sample)

    papers = [options.paper] if options.paper else list(suite.papers)
    costs = [cost(run, size(run), flops(run)) for paper in papers for run in suite.runs(paper, options.scale)]
    sums = {of: totals(costs, of) for of in ("experiment", "paper")}
    entries = json.dumps([item.as_dict() for item in (costs if options.by == "run" else sums[options.by])], indent=2)
    text = "\n\n".join([table(costs), *(table_of_totals(found, of) for of, found in sums.items())])
    if options.write:
        write_text(Path(f"{options.write}.json"), entries + "\n")
        write_text(Path(f"{options.write}.md"), text + "\n")
    else:
        print(entries if options.json else text)


def _time(options: argparse.Namespace) -> None:
    from resync.models import num_parameters
    from resync.plan.forecast import forecast, table

    def network(run: Run) -> Network:
        members = run.workers // run.resources.nodes
        return Network(LINKS[options.network], LINKS[options.inside], members, options.all_reduce)

    suite, count = _suite_of(options), _of_model(num_parameters)
    series = {(run.experiment, run.series): run for run in suite.runs(options.paper, options.scale)}
    published = suite.papers[options.paper].published
    given = {"compute": options.compute, "delay": options.delay, "workers": options.workers}
    found, unknown = forecast([(run, count(run)) for run in series.values()], published, network, **given)
    print(json.dumps([item.as_dict() for item in found], indent=2) if options.json else table(found))
    for line in unknown:
        print(f"resync: left out: {line}", file=sys.stderr)


def _of_model(count_of: Callable[[ModelOptions, Sequence[int], int], int]) -> Callable[[Run], int]:
    """A count that follows from a run's model and data; each model is counted once."""
    counts: dict[str, int] = {}

    def count(run: Run) -> int:
        key = f"{run.model.model_dump_json()} on {run.data.name}"
        if key not in counts:
            shape, classes = run.facts["input_shape"], run.facts["num_classes"]
            counts[key] = count_of(run.model, shape, classes)
        return counts[key]

    return count


def _schema(options: argparse.Namespace) -> int:
    from resync.config import schema

    if not options.check:
        schema.export(options.directory)
        return 0
    differences = schema.differences(options.directory)
    for difference in differences:
        print(difference, file=sys.stderr)
    return 1 if differences else 0


def _data(options: argparse.Namespace) -> int:
    from resync.prepare import check, data_root, declared, prepare

    of = declared(options.dataset)
    root = data_root(of)
    if options.action == "prepare":
        print(json.dumps(prepare(of, root, options.loader), indent=2))
        return 0
    properties = check(of, root, options.loader)
    for each in properties:
        print(f"{of.name}: {each}")
    return 0 if all(each.holds for each in properties) else 1


def _train(options: argparse.Namespace) -> int:
    run = Run.from_file(options.config)
    from resync.train import train

    return os.EX_OK if train(run, options.out, options.timeout) else os.EX_TEMPFAIL


def _launch(options: argparse.Namespace) -> int:
    from resync.launch import Start, launch

    where = {"nodes": options.nodes, "cpus": options.cpus}
    how = {"launcher": options.launcher, "max_restarts": options.max_restarts, "timeout": options.timeout}
    return launch(Start(options.config, options.out, **where, **how), main, options.on_node)


def _theory(options: argparse.Namespace) -> None:
    from resync.render.slow_sde import draw_theory

    for path in draw_theory(options.figures):
        print(path)


def _warm(options: argparse.Namespace) -> int:
    from resync.processes import warm

    return warm.run(options.command)


def _collect(options: argparse.Namespace) -> None:
    from resync.results import collect

    suite = _suite_of(options)
    frame = collect.collect(suite.runs(options.paper, options.scale), options.results)
    collect.write(frame, options.results / options.scale / options.paper / "collected")


def _render(options: argparse.Namespace) -> None:
    from resync.render.item import render

    suite = _suite_of(options)
    for path in render(suite, options.paper, options.item, options.scale, options.results, options.figures):
        print(path)


def _audit(options: argparse.Namespace) -> int:
    from resync.audit import audit

    papers = [options.paper] if options.paper else None
    result = audit(_suite_of(options), options.scale, options.results, papers)
    result.write(options.results / options.scale / (options.paper or ""))
    print(result.sentence)
    return 1 if options.check and result.failed else 0


def _status(options: argparse.Namespace) -> None:
    from resync.results.status import status, table

    suite = _suite_of(options)
    papers = [options.paper] if options.paper else list(suite.papers)
    found = [status(run, options.results) for paper in papers for run in suite.runs(paper, options.scale)]
    print(json.dumps([asdict(each) for each in found], indent=2) if options.json else table(found))


def _import(options: argparse.Namespace) -> None:
    from resync.importer import import_log

    print(
        import_log(
            _suite_of(options), options.run, options.scale, options.format, options.source, options.results,
            columns=options.columns, wandb_run=options.wandb_run, replace=options.replace,
        )
    )  # fmt: skip


def _report(options: argparse.Namespace) -> None:
    from resync.report import report

    print(report(_suite_of(options), options.scale, options.results, options.figures))


def _suite_of(options: argparse.Namespace) -> Suite:
    return load_suite(options.configs)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="resync", description=__doc__)
    verbs = parser.add_subparsers(title="verbs", required=True, metavar="VERB")

    def verb(name: str, function: Callable[[argparse.Namespace], int | None], text: str, *flags: str) -> None:
        added = verbs.add_parser(name, help=text, description=text)
        added.set_defaults(verb=function)
        for flag in flags:
            added.add_argument(flag.removesuffix("?"), **_FLAGS[flag])

    verb("validate", _validate, "check every configuration file", "--configs")
    verb("expand", _expand, "list the runs of a paper", "--configs", "--paper", "--scale", "--json")
    plan_flags = ("--configs", "--paper?", "--scale", "--json", "--by", "--write")
    verb("plan", _plan, "what runs cost: rounds, bytes, operations, GPU-hours, disk; no training", *plan_flags)
    machine = ("--network", "--inside", "--all-reduce", "--compute", "--delay", "--workers")
    timed = ("--configs", "--paper", "--scale", "--json", *machine)
    verb("time", _time, "how long runs take on a network, and where the time goes; no training", *timed)
    verb("schema", _schema, "write the JSON Schemas of the configuration files", "--directory", "--check")
    made = "convert a data set to the form that training reads, or check that form"
    verb("data", _data, made, "--loader", "action", "dataset")
    trained = ("--config", "--out", "--timeout")
    verb("train", _train, "train one run in this process (or in torchrun's)", *trained)
    started = ("--nodes", "--cpus", "--launcher", "--max-restarts", "--on-node")
    verb("launch", _launch, "train one run with its processes, here or in a Slurm job", *trained, *started)
    where = ("--configs", "--results")
    asked = (*where, "--paper?", "--scale", "--json")
    verb("status", _status, "how far the runs of a scale are, and why some failed", *asked)
    verb("collect", _collect, "gather a paper's results in one table", *where, "--paper", "--scale")
    drawn = (*where, "--figures")
    verb("render", _render, "draw one figure or table", *drawn, "--paper", "--scale", "--item")
    verb("audit", _audit, "compare with the published values and claims", *where, "--paper?", "--scale", "--check")
    import_flags = ("--run", "--scale", "--format", "--columns", "--wandb-run", "--replace", "source")
    verb("import", _import, "write a log of others as the results of a declared run", *where, *import_flags)
    verb("report", _report, "one page with everything of a scale", *drawn, "--scale")
    verb("theory", _theory, "draw the slow SDE of Local SGD against a simulation", "--figures")
    verb("warm", _warm, "run a command (snakemake ...) whose jobs here share their imports", "command")
    return parser


_FLAGS: dict[str, dict[str, Any]] = {
    "--configs": {
        "type": Path,
        "default": Path("paper_configs"),
        "help": "folder of the papers (default: %(default)s)",
    },
    "--results": {
        "type": Path,
        "default": Path("results"),
        "help": "folder of the results (default: %(default)s)",
    },
    "--figures": {
        "type": Path,
        "default": Path("figures"),
        "help": "folder of the figures (default: %(default)s)",
    },
    "--paper": {"required": True, "help": "name of the paper, a folder of --configs"},
    "--paper?": {"help": "only this paper"},
    "--scale": {"choices": SCALES, "default": "smoke", "help": "default: %(default)s"},
    "--item": {"required": True, "help": "id of the figure or table"},
    "--json": {"action": "store_true", "help": "print JSON"},
    "--by": {
        "choices": ("run", "experiment", "paper"),
        "default": "run",
        "help": "what an entry of the JSON is about; the text has all three (default: %(default)s)",
    },
    "--write": {
        "type": Path,
        "metavar": "STEM",
        "help": "write STEM.json and STEM.md instead of printing one of them",
    },
    "--check": {"action": "store_true", "help": "exit with 1 if something fails"},
    "--config": {"type": Path, "required": True, "help": "the run's run.yaml"},
    "--out": {"type": Path, "required": True, "help": "folder for the run's results"},
    "--nodes": {"type": int, "default": 1, "help": "machines of the Slurm job (default: %(default)s)"},
    "--cpus": {"type": int, "default": 1, "help": "CPU cores on each of them (default: %(default)s)"},
    "--launcher": {
        "choices": ("torchrun", "deepspeed"),
        "default": "torchrun",
        "help": "what starts the processes of a machine (default: %(default)s)",
    },
    "--max-restarts": {
        "type": int,
        "default": 0,
        "help": "times that all processes are started again after one failed (default: %(default)s)",
    },
    "--timeout": {
        "type": int,
        "default": Resources().timeout_seconds,
        "metavar": "SECONDS",
        "help": "a process without a completed step for so long ends (default: %(default)s)",
    },
    "--on-node": {"action": "store_true", "help": "only this machine's processes: a task of `launch` in a Slurm job"},
    "command": {"nargs": argparse.REMAINDER, "help": "the command and its arguments"},
    "action": {"choices": ("prepare", "check"), "help": "prepare prints the record of the file as JSON"},
    "--loader": {
        "choices": ("auto", "ffcv", "torch"),
        "help": "for images that are read from disk: prepare or check what this loader reads (default: the data set's)",
    },
    "dataset": {"help": "name of the data set; its original images are below the folder RESYNC_DATA"},
    "--network": {"choices": tuple(LINKS), "required": True, "help": "link between nodes"},
    "--inside": {"choices": tuple(LINKS), "default": "pcie_3_x16", "help": "inside a node (default: %(default)s)"},
    "--all-reduce": {"choices": tuple(ALL_REDUCES), "default": "ring", "help": "between nodes (default: %(default)s)"},
    "--compute": {
        "type": float,
        "metavar": "SECONDS",
        "help": "of a local step without communication (default: calibrated on two published hours)",
    },
    "--delay": {
        "type": float,
        "default": 0.0,
        "metavar": "SECONDS",
        "help": "mean of an exponential delay of every step (default: none)",
    },
    "--workers": {"type": int, "help": "extrapolate to so many, with the same samples a step and worker"},
    "--directory": {"type": Path, "default": Path("workflow/schemas"), "help": "default: %(default)s"},
    "--run": {"required": True, "help": "id of the declared run, as `resync expand` lists it"},
    "--format": {
        "required": True,
        "choices": ("sgp", "csv", "wandb-csv", "wandb-api"),
        "help": "sgp: CSV logs of the original SGP code, one a rank; csv: a table; wandb-csv: charts exported from "
        "the web page of Weights & Biases; wandb-api: a run on its server (WANDB_API_KEY)",
    },
    "--columns": {"type": Path, "help": "YAML file: our columns to those of the log, for all formats but sgp"},
    "--wandb-run": {"help": "name of the run, where charts show several"},
    "--replace": {"action": "store_true", "help": "delete what the run's folder holds"},
    "source": {"nargs": "+", "help": "files of the log; for wandb-api entity/project/run"},
}
