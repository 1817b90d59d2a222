"""An algorithm beside tuned series of the archive, on three standing tasks.

`tasks` has the tasks, `declared` the paper that trains the algorithm on them, first at several learning rates on pilot
seeds, and `drawn` the figures and the table of paired differences.
"""
