"""Investigations: a question, controlled runs in a declared order that answer it, and the evidence that they leave."""
