"""What is typed and what is shown meanwhile."""
