"""Parts of scripts/report.py: what a result file says, as one page."""
