"""Captures for other tools: columns for a data frame, a timeline, scalars, and metrics to scrape."""
