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
    "single": "the best client's layers for everybody, with a last layer from everybody's data",
    "concat": "the clients' networks side by side in one",
    "mean-of-locals": "the mean of the predictions of the clients' own networks",
}
HEADS = {
    "exact": "the last layer solved as one least-squares problem over all clients, from sums that they send.",
    "mean": "the last layer as it was trained, averaged over the clients like everything else.",
    "personal": "the last layer solved by every client for itself near the common one; it never leaves the client.",
}
FEDERATION = [
    ("Round", "clients train, the server puts their networks together and sends the result back."),
    ("Traffic", "all bytes of a method in both directions until the chosen round."),
    ("Matching", "finding out which neurons of different clients do the same, so that like is averaged with like."),
    ("L′", "how many neurons a matched layer has; between the widest client’s and the sum of all."),
    ("Ledger", "a site’s own list of the messages that left it."),
]


DECISIONS = [
    (
        "Unexpected breaks",
        "share of units that fail before they are maintained, where a unit is maintained at the first prediction at or "
        "below a threshold. Units that end before failure count as long as they were followed (product-limit "
        "estimate), and as breaking if they were not maintained where too few are left to follow.",
    ),
    (
        "Life thrown away",
        "remaining life that a unit had when it was maintained; the mean over all units, 0 for breaks.",
    ),
    (
        "Alpha-lambda accuracy",
        "share of units whose prediction is within 20 % of the true remaining life when a share of the life is over, "
        "counted from the first prediction; of the units that were followed so far. Beyond the cap nobody can be.",
    ),
    (
        "Horizon",
        "remaining life from which on all predictions of a unit, as far as it was followed, are off by at most a tenth "
        "of the life it had at the first prediction; the median over units.",
    ),
]
INTERVALS = [
    (
        "Coverage",
        "share of true values inside their prediction interval; it should be what the experiment asks for, 90 % by "
        "default.",
    ),
    ("Interval width", "mean distance between the ends of the intervals; among equal coverage narrower is better."),
]


def glossary(material: Material) -> list[tuple[str, str]]:
    """Terms and their meanings, those of this report only."""
    rul = material.task == "rul"
    own_test = "the common test" if any(s.shared_test for s in material.settings) else "its own test units"
    found = [
        ("RMSE", f"root of the mean squared error over all test points, {material.measured}; large errors weigh most.")
    ]
    if rul and material.cap is not None:
        found[0] = (
            "RMSE raw",
            f"root mean squared error of all test points, {material.measured}, against the true remaining life.",
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
    if any(row.scores.get("coverage") is not None for row in material.results.rows):
        found += INTERVALS
    if any(s.lives for s in material.settings):
        found += DECISIONS
    found += [(f"{head.capitalize()} head", HEADS[head]) for head in material.heads if head in HEADS]
    if any(s.ledgers or s.matchings for s in material.settings):
        found += FEDERATION
    methods = dict.fromkeys(row.method for row in material.results.rows)
    for method in methods:
        base, plus, variant = method.partition("+")
        if base in METHODS:
            found.append((method, METHODS[base] + (f", with a {variant} head" if plus else "") + "."))
    return found
