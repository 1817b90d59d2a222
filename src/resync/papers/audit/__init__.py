"""Comparison of published and reproduced numbers, each with one verdict and one reason."""

from resync.papers.audit.headline import sentence
from resync.papers.audit.page import answer, find, gather, to_json, write
from resync.papers.audit.papers import audit
from resync.papers.audit.rows import Audit

__all__ = ["Audit", "answer", "audit", "find", "gather", "sentence", "to_json", "write"]
