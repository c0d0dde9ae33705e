"""What result files say, as one page."""
