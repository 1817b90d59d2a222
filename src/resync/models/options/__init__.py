"""The options of every model, one file each, without torch. See resync.settings.options."""
