"""One training: its settings, its start, its loop, what it measures and keeps."""
