"""The options of every kind of figure and table, a file of its own for each. See resync.settings.options."""
