"""What is trained: data sets and models."""
