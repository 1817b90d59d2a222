"""The options of every model, a file of its own for each; no torch. See resync.settings.options."""
