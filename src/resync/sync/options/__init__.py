"""The options of every synchronisation algorithm, one file each, without torch. See resync.settings.options."""
