"""The median remaining life of all training rows, always."""

import numpy as np

import fedprognos as fp


def fit(train, recipe):
    """One number for everything, whatever is tested."""
    median = float(np.median(recipe.capped(train.labels)))
    return lambda test: np.full(len(test), median)


MEDIAN = fp.Baseline("median", "Median life", 15, fit)
