"""Verbs that prepare data and train."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from resync.base.errors import UserError
from resync.base.settings.errors import not_among
from resync.base.text_tables import json_text
from resync.runs.results.summary import refuse_other_results
from resync.runs.run import Run
from resync.tools.cli.declare import ANY_PAPER, CONFIGS, PILOTS, RESULTS, SCALE, TRAINING, flag, runs_of, suite_of, verb


@verb(
    "download, convert or check data sets",
    CONFIGS, SCALE,
    flag("--format", choices=("auto", "beton", "files"),
         help="format of images that are read from disk (default: that of the data set)"),
    flag("action", choices=("get", "prepare", "check"),
         help="get: download what is missing, of the named data sets or of those that runs at --scale read, and say "
         "how to get what has no address; prepare: convert it to the format that training reads, and print its record "
         "as JSON; check: compare a converted one with its description"),
    flag("datasets", nargs="*", metavar="DATASET",
         help="names of data sets; source files are below the folder RESYNC_DATA, converted ones in RESYNC_PREPARED "
         "(default: prepared, in RESYNC_DATA)"),
)  # fmt: skip
def _data(options: argparse.Namespace) -> int:
    from resync.tasks.prepare import check, data_root, declared, download, prepare

    if options.action == "get":
        suite = suite_of(options)
        runs = [run for paper in suite.papers for run in suite.runs(paper, options.scale)]
        of_scale = {run.data.name for run in runs if run.data.component.is_prepared}
        places = {}
        for of in map(declared, options.datasets or sorted(of_scale)):
            data_root(of)
            places[of.name] = download(of)
            print(f"{of.name}: {places[of.name]}", flush=True)
        return int(any(where.remedy for where in places.values()))
    if len(options.datasets) != 1:
        raise UserError(f"DATASET: found {len(options.datasets)}, allowed: one with {options.action}")
    of = declared(options.datasets[0])
    root = data_root(of)
    if options.action == "prepare":
        print(json_text(prepare(of, root, options.format)))
        return 0
    properties = check(of, root, options.format)
    for item in properties:
        print(f"{of.name}: {item}")
    return 0 if all(item.holds for item in properties) else 1


@verb("train one run in this process (or as one of torchrun's processes)", *TRAINING)
def _train(options: argparse.Namespace) -> int:
    from resync.runs.launch.stopping import stop_asked

    if stop_asked():
        return os.EX_TEMPFAIL  # while its launcher was starting it
    run = Run.from_file(options.config, overrides=options.overrides)
    run.refuse_declared_folder(options.out)
    refuse_other_results(options.out, run.hash)
    from resync.runs.train import train

    return os.EX_OK if train(run, options.out, options.timeout) else os.EX_TEMPFAIL


@verb(
    "train one run with its processes: here, in a Slurm job, or this machine's part of those over a hostfile",
    *TRAINING,
    flag("--nodes", type=int, help="number of machines (default: 1, or all of --hostfile)"),
    flag(
        "--hostfile",
        type=Path,
        help="machines to use outside a Slurm job, unless --nodes is 1: lines `host slots=n` as for DeepSpeed; on each "
        "of them this is started",
    ),
    flag("--node-rank", type=int, help="the number of this machine in --hostfile, from 0"),
    flag("--cpus", type=int, default=1, help="CPU cores on each machine (default: %(default)s)"),
    flag(
        "--launcher",
        choices=("auto", "fork", "torchrun", "deepspeed"),
        default="auto",
        help="what starts the processes: torchrun, DeepSpeed's launcher, or fork, on the CPU of one machine only; auto "
        "is fork there, else torchrun (default: %(default)s)",
    ),
    flag(
        "--max-restarts",
        type=int,
        default=0,
        help="number of times that all processes are restarted after a failure (default: %(default)s)",
    ),
    flag(
        "--attempt",
        type=int,
        default=0,
        help="number of this start by a workflow that tries again, which keeps train.log in --out as "
        "train.<number>.log; after the first one, a mistake such as missing data is not tried again",
    ),
    flag("--on-node", action="store_true", help="only this machine's processes: a task of `launch` in a Slurm job"),
)
def _launch(options: argparse.Namespace) -> int:
    from resync.runs.launch import Request, launch

    request = Request(
        options.config, options.out, nodes=options.nodes, cpus=options.cpus, launcher=options.launcher,
        max_restarts=options.max_restarts, timeout=options.timeout, attempt=options.attempt,
        overrides=tuple(options.overrides), hostfile=options.hostfile, node_rank=options.node_rank,
    )  # fmt: skip
    return launch(request, options.on_node)


@verb(
    "try every shape of job for some steps, by the path of the real runs: memory, rates, hours against the limit",
    CONFIGS, RESULTS, ANY_PAPER, SCALE, PILOTS,
    flag("--shape", metavar="ID", help="only this shape, as a job of the workflow does; writes no page"),
    flag("--gather", action="store_true", help="only write the page of what has been rehearsed"),
)  # fmt: skip
def _rehearse(options: argparse.Namespace) -> int:
    from resync.papers.plan.rehearsed import NAME, shapes
    from resync.papers.rehearsal import gather, page, rehearse

    by_shape = shapes(runs_of(suite_of(options), options))
    if options.shape and options.shape not in by_shape:
        raise UserError(f"--shape: {not_among(options.shape, by_shape)}")
    folder = options.results / options.scale / NAME
    for runs in [by_shape[options.shape]] if options.shape else [] if options.gather else by_shape.values():
        if code := rehearse(runs, folder):
            return code
    if not options.shape:
        print(page(options.scale, gather(options.results, options.scale, by_shape)), end="")
    return os.EX_OK
