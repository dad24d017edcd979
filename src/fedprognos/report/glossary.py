"""The terms of the report, one line each."""

from __future__ import annotations

from fedprognos.report.material import Material

METHODS = {
    "constant": "always the mean label of the training data",
    "last": "the last value known of the same unit",
    "age": "the mean remaining life of the training units that reached the same age",
    "ridge": "linear regression on the whole window",
    "boosting": "gradient-boosted trees on rolling statistics of the window",
    "local": "a network each client trains on its own data alone",
    "central": "one network trained on everybody's data in one place, as if nobody minded sharing it",
    "fedavg": "networks trained by the clients, averaged weight by weight",
    "fedprox": "as fedavg, with each client held near the common network",
    "fedma": "networks trained by the clients, averaged after matching neurons that do the same",
    "concat": "the clients' networks side by side in one",
    "mean-of-locals": "the mean of the predictions of the clients' own networks",
}


def glossary(material: Material) -> list[tuple[str, str]]:
    """Terms and their meanings, those of this report only."""
    rul = material.task == "rul"
    own_test = "the common test" if any(s.shared_test for s in material.settings) else "its own test units"
    found = [
        ("RMSE", f"root of the mean squared error over all test points, in {material.unit}; large errors weigh most.")
    ]
    if rul and material.cap is not None:
        found[0] = (
            "RMSE raw",
            f"root mean squared error of all test points, in {material.unit}, against the true remaining life.",
        )
        found.append(
            (
                "RMSE capped",
                f"the same against labels cut off at {material.cap:g}: early in life nothing shows yet, so networks "
                "are trained to say no more than that.",
            )
        )
    found += [
        ("MAE", "mean absolute error: how far off a prediction typically is."),
        ("R²", "share of the labels' variance explained; 0 is no better than their mean, below 0 worse."),
        ("Bias", "mean of predicted minus true; above zero health is overestimated."),
    ]
    if rul:
        found.append(
            (
                "NASA score",
                "mean penalty a point: exp(d/10) − 1 where the prediction is late by d, exp(d/13) − 1 where early "
                "by d. Lower is better; a few very wrong points can dominate it.",
            )
        )
    found += [
        (
            "Late",
            "share of points whose health is overestimated, the dangerous side. No best is marked: always saying "
            "“broken” is never late.",
        ),
        ("±", "standard deviation over seeds: how much repeating the training changes the result."),
        ("95 % interval", "range of the RMSE when the test units are drawn anew, with repeats (bootstrap over units)."),
        (
            "Yardsticks",
            "predictors that cost nothing; a network that does not beat them has learnt nothing worth having.",
        ),
        ("Own data", f"each client's own model on {own_test}, errors pooled over all points of all clients."),
        ("All data", "one model for everybody, trained on or across the data of all clients."),
    ]
    methods = dict.fromkeys(row.method for row in sorted(material.results.rows, key=lambda r: r.key))
    for method in methods:
        base, plus, variant = method.partition("+")
        if base in METHODS:
            found.append((method, METHODS[base] + (f", with a {variant} head" if plus else "") + "."))
    return found
