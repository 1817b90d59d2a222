# Common definitions of the rules: they map the names in a target to runs and scales of resync.tools.workflow, which holds all
# logic.
import os
from functools import cache
from pathlib import Path

from resync.tools import workflow as files
from resync.papers.paper import load_suite
from resync.base.processes import workflow_lock, workflow_timer
from resync.base.processes.garbage import all_kept

# Not for the processes in which Snakemake carries out jobs on other machines: they take no lock.
if workflow.is_main_process:
    workflow_lock.hold(Path())

with all_kept():
    SUITE = load_suite(Path("paper_configs"))
SCALE = files.chosen_scale(config, SUITE)

RUN, RUN_FILES = files.RUN, files.RUN_FILES
at = cache(lambda scale: files.Targets(SUITE, scale))
run_of = lambda names: at(names.scale).run(RUN.format(**names))


# An input of a training. For a run that has its results only their hash counts, and no time of a file: after a copy the
# files have any order. Where nothing of a training's input has to be made, `ancient` hides only times.
def of_training(names, wanted):
    kept = at(names.scale).kept(run_of(names), workflow.dag_settings.forcerun)
    if kept == "imported":  # that log cannot be made again, and is never replaced by a training
        wanted = filter(os.path.exists, wanted)
    return list(map(ancient, wanted) if kept else wanted)


rehearsed = lambda names: at(names.scale).shapes[names.shape][0]
if_several = lambda names, value: value if files.srun_nodes(run_of(names)) else None

if not workflow.deployment_settings.deployment_method:
    files.prefer_this_python()
