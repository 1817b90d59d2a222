"""How workers compute and talk: rows of parameters, gradients and steps, the transport between processes."""
