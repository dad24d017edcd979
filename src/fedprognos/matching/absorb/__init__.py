"""Matching neurons by what they put out: absorption."""
