"""The workers of a training and what they exchange: engines, algorithms, optimizers, formulas."""
