"""What everything uses and knows of no training: settings, errors, files, random streams, processes."""
