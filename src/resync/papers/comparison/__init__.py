"""An algorithm beside series of the archive, on three standing tasks.

`tasks` has the tasks, `declared` the paper that trains the algorithm on them, first at several learning rates on pilot
seeds, and `drawn` the figures and the tables of paired differences.
"""
