"""Joint vocabularies of two languages: byte-pair encoding (Sennrich et al. 2016) with sentencepiece."""

from collections.abc import Iterable, Sequence
from io import BytesIO

from resync.base.errors import UserError

PAD, UNKNOWN, BEGIN, END = range(4)
"""Special ids, the same in every vocabulary.

They stand for padding, a character that no piece covers, and the beginning and end of a sentence.
"""


class Vocabulary:
    """Subword pieces and their ids; `model` is the content of the file that sentencepiece reads."""

    def __init__(self, model: bytes) -> None:
        # Imported here, because most runs have no text.
        import sentencepiece

        self.model = model
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)

    @classmethod
    def train(cls, sentences: Iterable[str], size: int) -> "Vocabulary":
        """A vocabulary of `size` frequent pieces, which is a function of the sentences alone.

        Raises ValueError if the sentences do not have that many pieces.
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
            raise UserError(
                f"no vocabulary of {size} pieces can be learned from the training text ({reason})"
            ) from error
        return cls(model.getvalue())

    def __len__(self) -> int:
        return len(self._processor)

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """The ids of every sentence, END last. Normalises to NFKC and single spaces."""
        return list(self._processor.encode(list(sentences), out_type=int, add_eos=True))

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._processor.decode([index for index in ids if index not in (PAD, BEGIN, END)]))
