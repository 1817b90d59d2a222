"""BLEU of translations, in the two forms that are published."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version

from sacrebleu.metrics.bleu import BLEU
from sacremoses import MosesTokenizer


@dataclass(frozen=True)
class Bleu:
    """A form of corpus BLEU (Papineni et al. 2002) from 0 to 100, from counts that add up over parts of the corpus.

    Attributes:
        metric: counts n-grams of sentences after its own tokenisation.
        smooth_method: what takes the place of a precision of 0, in sacreBLEU's words.
        signature: the exact definition.
        prepared: makes of a sentence what `metric` takes.
    """

    metric: BLEU
    smooth_method: str
    signature: str
    prepared: Callable[[str], str] = str

    def statistics(self, translations: Sequence[str], references: Sequence[str]) -> list[int]:
        """Matching and total n-grams for n = 1 to 4, and the numbers of tokens of both sides, [10]."""
        if not references:
            return [0] * 10
        ours, theirs = ([self.prepared(sentence) for sentence in side] for side in (translations, references))
        score = self.metric.corpus_score(ours, [theirs])
        return [*score.counts, *score.totals, score.sys_len, score.ref_len]

    def score(self, statistics: Sequence[int]) -> float:
        counts, totals, (ours, theirs) = statistics[:4], statistics[4:8], statistics[8:]
        return BLEU.compute_bleu(list(counts), list(totals), ours, theirs, smooth_method=self.smooth_method).score


def forms(language: str) -> dict[str, Bleu]:
    """Both forms by the names of their metrics, for translations into a language (ISO 639-1).

    `test_bleu` is sacreBLEU's, with its defaults (Post 2018): it tokenises as WMT's script does, and is comparable
    between papers. `test_bleu_tokenised` is what papers that use fairseq report (Ott et al. 2018, after Vaswani et al.
    2017): of tokens by Moses, with compounds split at their hyphens, without smoothing.
    """
    default = BLEU()
    default.corpus_score([""], [[""]])  # its signature exists after the first score
    moses = MosesTokenizer(lang=language)

    def split(sentence: str) -> str:
        tokens = moses.tokenize(sentence, return_str=True, escape=False)
        return re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", tokens)

    of_moses = f"nrefs:1|case:mixed|eff:no|tok:moses-{language}, compounds split|smooth:none|version:{{}}"
    return {
        "test_bleu": Bleu(default, "exp", str(default.get_signature())),
        "test_bleu_tokenised": Bleu(
            BLEU(tokenize="none", force=True, smooth_method="none"),
            "none",
            of_moses.format(f"sacremoses {version('sacremoses')}"),
            split,
        ),
    }
