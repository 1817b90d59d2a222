"""Rehearsals: one short job for every shape of job, by the path of the real runs, and what they say."""

from resync.papers.rehearsal.records import gather, page
from resync.papers.rehearsal.start import rehearse

__all__ = ["gather", "page", "rehearse"]
