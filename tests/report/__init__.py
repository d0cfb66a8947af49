"""The report: its values, its page, and the page in a browser."""
