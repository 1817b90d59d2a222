"""Comparison of published and reproduced numbers, each with one verdict and one reason."""

from resync.audit.headline import sentence
from resync.audit.page import answer, find, gather, to_json, write
from resync.audit.papers import audit
from resync.audit.rows import Audit

__all__ = ["Audit", "answer", "audit", "find", "gather", "sentence", "to_json", "write"]
