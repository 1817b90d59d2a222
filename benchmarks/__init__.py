"""Benchmarks of the project beside its peers: `make bench`, or `make bench ONLY=synchronisation,loading`.

Every file `benchmarks/<name>.py` is a benchmark; what several share is in folders. It has one function:

    def benchmark(smallest: bool = False) -> Benchmark:   # the smallest: for a test whether it runs
        return Benchmark(
            title="Addition",
            minutes=1,                                    # the time that it may take on two cores
            measures={"seconds": Measure("s", "lower")},  # the first one is drawn
            cases=[
                Case("ours", add_ours, group="1,000 numbers"),
                Case("theirs", add_theirs, group="1,000 numbers"),
            ],
            base="theirs",                                # the case of each group that ratios refer to
            code=["workers/formulas"],                            # what it measures in src/resync
            goals=[Goal("ours", at=1.0, beside=("theirs",))],
        )

A case is measured once per round by its function, which returns a number, or a list of them, for each measure; it may
leave measures out. All cases take their turns in every round, in the opposite order in every second one, so that a
machine that slows down slows all of them. There are three rounds, and up to nine while the time lasts. `warm_up`
of a benchmark is called first, and `close` at the end, whatever happens. A function that cannot measure raises
`Unavailable` with the reason, which then stands in the results, as does the last line of an error in a process of a
case: no case disappears.

`Processes` (harness/processes.py) starts the processes of a case: each is forked from a process that has imported torch
already, in this environment or in that of a peer (harness/peers.py), and reports its result, processor time and peak
memory.

Results are `benchmarks/results/<kind of machine>/<name>.json`, with the environment, and `<name>.svg`, which is drawn
from the JSON alone: by `draw(results) -> Figure` of the benchmark if it has one, else as bars.
`python -m benchmarks --redraw` draws all figures again, and `--list` says of which commit each result is, and how many
commits have changed what it measures since. A benchmark that fails is told, and the next one runs.
"""
