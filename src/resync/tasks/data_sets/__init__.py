"""What a data set is: how it is declared, prepared and read. Its code is in `resync.tasks.data`."""
