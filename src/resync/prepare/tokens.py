"""Token ids with a meaning of their own, the same in every vocabulary."""

PAD, UNKNOWN, BEGIN, END = range(4)
"""Filling after the end of a sentence, a character that no piece covers, and both ends of a sentence."""
