"""The cases of the benchmark `synchronisation`, as code that runs in the processes: models, loops, methods.

`ideal` and `peers` import nothing of resync: they run in environments that have torch and one peer.
"""
