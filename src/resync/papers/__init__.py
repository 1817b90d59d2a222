"""What papers ask and what came out: configurations, plans, figures, audits, pages, the archive."""
