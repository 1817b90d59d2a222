"""What is measured: every metric, and the settings of evaluations."""
