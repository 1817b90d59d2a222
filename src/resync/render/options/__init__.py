"""The options of every kind of figure and table, one file per kind. See `resync.settings.options`."""
