"""Matching neurons by their weights: BBP-MAP (Eq. 4 and 5 of the paper)."""
