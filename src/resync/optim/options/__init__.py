"""The options of every optimizer, a file of its own for each; no torch. See resync.settings.options."""
