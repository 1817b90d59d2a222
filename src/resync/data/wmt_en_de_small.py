"""A sample of WMT, English-German."""

from resync.data.text import ParallelText, from_prepared_text


def build(max_tokens: int) -> ParallelText:
    """The sentence pairs in buckets of `max_tokens`. Raises ValueError where they are not prepared."""
    return from_prepared_text("wmt_en_de_small", max_tokens)
