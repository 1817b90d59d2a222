"""The options of every synchronisation algorithm, without torch. See `resync.settings.options`."""
