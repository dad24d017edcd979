"""What channels and history rules promise: rows fed one by one give what the whole unit gives, to the last bit."""

from __future__ import annotations

import numpy as np

from fedprognos.arrays import Rows
from fedprognos.checks.requirement import check_named, require, same_bytes
from fedprognos.features import ChannelKind, Recipe, RecipeOptions, build_windows, recipe_for
from fedprognos.features.history import Cut, HistoryRule, histories
from fedprognos.fleet import Fleet, Unit
from fedprognos.fleet.synthetic import synthetic_batteries, synthetic_engines

SPANS, SENSORS, ROWS = (1, 2, 7, 100), 3, 30


def check_channel(kind: ChannelKind) -> None:
    """Check a kind of channel on made-up rows.

    - `batch` gives float32 columns, as many as `columns` says, and never looks at later rows.
    - `start` gives the same bytes row by row, also after a snapshot was restored in between.

    Raises
    ------
    CheckError
        The first promise that the channel breaks.

    Examples
    --------
    >>> import fedprognos as fp
    >>> fp.checks.check_channel(fp.registry.channels["mean"])
    """
    where = check_named("channel", kind)
    for seed, span in enumerate(SPANS):
        rows = np.random.default_rng(seed).normal(0, 10, (ROWS, SENSORS)).astype(np.float32)
        whole, spanned = kind.batch(rows, span), f"{where}, span {span}"
        shape = (ROWS, kind.columns(SENSORS))
        require(whole.shape == shape, f"`batch` gives shape {whole.shape}, not {shape}", where=spanned)
        require(whole.dtype == np.float32, f"`batch` gives {whole.dtype}, not float32", where=spanned)
        require(
            same_bytes(kind.batch(rows[: ROWS // 2], span), whole[: ROWS // 2]),
            "`batch` looks at later rows",
            where=spanned,
            hint="a row online has no later rows; use this row and earlier ones only",
        )
        _check_channel_rows(kind, rows, whole, span, spanned)


def _check_channel_rows(kind: ChannelKind, rows: Rows, whole: Rows, span: int, where: str) -> None:
    channel = kind.start(SENSORS, span)
    for k, row in enumerate(rows):
        if k == ROWS // 3:
            kept, channel = channel.snapshot(), kind.start(SENSORS, span)
            channel.restore(kept)
        require(
            same_bytes(channel.push(row), whole[k]),
            f"`push` gives other bytes than `batch` at row {k}",
            where=where,
            hint="make both in the same order of operations; list everything remembered in `scalars` and `arrays`",
        )


def check_history(rule: HistoryRule, **options: object) -> None:
    """Check a history rule on small made-up fleets, series or cyclic as the rule says.

    - `cut` gives windows of `recipe.window` rows, and `fits` says whether there are any.
    - `start` gives the same windows row by row, also after a snapshot was restored in between.

    Parameters
    ----------
    options
        Keys of `[recipe]` that the rule needs; `window` is 5 by default, for series.

    Raises
    ------
    CheckError
        The first promise that the rule breaks.

    Examples
    --------
    >>> import fedprognos as fp
    >>> fp.checks.check_history(fp.registry.histories["window"], window=8)
    """
    where = check_named("history rule", rule)
    with histories.including([rule]):
        fleet = _small_fleet(rule.cyclic)
        chosen = {"cycle": rule.name} if rule.cyclic else {"history": rule.name, "window": 5}
        recipe = recipe_for(RecipeOptions.model_validate(chosen | options), {"only": fleet})
        windows = build_windows(recipe, fleet, stride=1, labelled=False)
        require(windows.length == recipe.window, f"windows have {windows.length} rows", where=where)
        for unit in fleet:
            require(rule.fits(recipe, unit), "`fits` is False of a unit that has windows", where=f"{where}, {unit.id}")
            cuts = [cut for cut in _fed(rule, recipe, fleet, unit) if cut.window is not None]
            mine = np.flatnonzero(windows.unit == windows.unit_ids.index(unit.id))
            # Online, the first rows give padded windows that training on a whole unit does not have.
            cuts = cuts[len(cuts) - len(mine) :]
            require(len(cuts) == len(mine), f"row by row {len(cuts)} windows of {len(mine)}", where=where)
            for cut, position, window in zip(cuts, windows.position[mine], windows.batch(mine), strict=True):
                at = f"{where}, unit '{unit.id}', position {position:g}"
                require(cut.position == position, f"row by row the window is at {cut.position:g}", where=at)
                require(same_bytes(cut.window, window), "row by row the window has other bytes", where=at)


def _small_fleet(cyclic: bool) -> Fleet:
    if cyclic:
        return synthetic_batteries(sites=1, units_per_site=2, cycles=20, samples=60)
    return synthetic_engines(sites=1, units_per_site=2, conditions=2, seed=1)[0]


def _fed(rule: HistoryRule, recipe: Recipe, fleet: Fleet, unit: Unit) -> list[Cut]:
    """All windows that the rows of a unit complete, one after the other."""
    sensors, settings = recipe.check(fleet.schema, "check")
    scaled, unseen = recipe.scale(unit.sensors[:, sensors], unit.settings[:, settings])
    history = rule.start(recipe)
    cuts: list[Cut] = []
    for k in range(unit.rows):
        if k % 10 == 9:
            kept, history = history.snapshot(), rule.start(recipe)
            history.restore(kept)
        cycle, end = 0, False
        if unit.cycles is not None and unit.cycle_numbers is not None:
            at = int(np.searchsorted(unit.cycles, k, side="right")) - 1
            cycle, end = int(unit.cycle_numbers[at]), k + 1 == unit.cycles[at + 1]
        cuts += history.push(scaled[k], float(unit.time[k]), cycle=cycle, end=end, unseen=bool(unseen[k]))
    return [*cuts, *history.close()]
