"""Joint vocabularies of two languages: byte-pair encoding (Sennrich et al. 2016) by sentencepiece."""

from collections.abc import Iterable, Sequence
from io import BytesIO

from resync.prepare.tokens import BEGIN, END, PAD, UNKNOWN


class Vocabulary:
    """Pieces of words and their ids; `model` is the file that sentencepiece reads."""

    def __init__(self, model: bytes) -> None:
        # Imported where it is used: most runs have no text.
        import sentencepiece

        self.model = model
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)

    @classmethod
    def train(cls, sentences: Iterable[str], size: int) -> "Vocabulary":
        """`size` pieces that are frequent in the sentences, a function of the sentences alone.

        Raises ValueError where they do not have so many.
        """
        import sentencepiece

        model = BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(sentences),
                model_writer=model,
                model_type="bpe",
                vocab_size=size,
                character_coverage=0.9999,
                pad_id=PAD,
                unk_id=UNKNOWN,
                bos_id=BEGIN,
                eos_id=END,
                num_threads=1,
                max_sentence_length=1 << 16,
                minloglevel=2,
            )
        except RuntimeError as error:
            reason = str(error).splitlines()[-1]
            raise ValueError(f"no vocabulary of {size} pieces can be made of the training text ({reason})") from error
        return cls(model.getvalue())

    def __len__(self) -> int:
        """How many ids there are."""
        return len(self._processor)

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """The ids of every sentence, END last. Normalises to NFKC and single spaces."""
        return list(self._processor.encode(list(sentences), out_type=int, add_eos=True))

    def decode(self, ids: Sequence[int]) -> str:
        """The sentence of these ids, which may be fewer than those of a whole one."""
        return str(self._processor.decode([index for index in ids if index not in (PAD, BEGIN, END)]))
