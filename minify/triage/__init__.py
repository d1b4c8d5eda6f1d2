"""Symptom first: which of accuracy, crash or speed a user's trouble is. Empty so far; `accuracy` and `crash` are asked for by name."""
