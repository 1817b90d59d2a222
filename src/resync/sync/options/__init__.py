"""The options of every synchronisation algorithm, a file of its own for each; no torch. See resync.settings.options."""
