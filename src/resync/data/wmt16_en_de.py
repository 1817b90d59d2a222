"""WMT'16, English-German."""

from resync.data.text import ParallelText, from_prepared_text


def build(max_tokens: int) -> ParallelText:
    """The sentence pairs in buckets of `max_tokens`. Raises ValueError where they are not prepared."""
    return from_prepared_text("wmt16_en_de", max_tokens)
