"""The median remaining life of all training rows, always."""

import numpy as np

import fedprognos as fp


def predict(train, test, recipe):
    """One number for everything."""
    return np.full(len(test), float(np.median(recipe.capped(train.labels))))


MEDIAN = fp.Baseline("median", "Median life", 15, predict)
