"""The options of every optimizer, one file each, without torch. See resync.settings.options."""
