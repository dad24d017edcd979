"""docs/results/tables.md: all tables and pictures behind the conclusions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from studies.lines import Comparison, comparisons
from studies.markdown import NOTHING, folded, shown, table
from studies.paper import PaperTable, paper
from studies.pictures import Picture
from studies.places import LIFE
from studies.record import Record
from studies.tables_comparison import comparison_table, differences_table
from studies.tables_paper import battery_table, turbofan_table

INTRODUCTION = """\
The conclusions from these tables are on [one page](../results.md). Errors are RMSE, pooled over all test points. ± is
the standard deviation over seeds."""
TITLES = {
    "battery": "## Batteries: capacity of B0006, B0007, B0018",
    "turbofan": "## Turbofan engines: remaining life, C-MAPSS FD004",
}
DATA_PICTURES = {"battery": ("signals", "fade"), "turbofan": ("lifespans", "targets")}
HOW_TO_READ = """\
- *Paper*: as printed there.
- *Re-run*: the paper's protocol in our program (`{rerun}`), {rerun_head} head. One column takes the round that is best
  on the test data, for each test and seed, as the paper does. That needs the answers, so nobody can do it in practice.
  The other column chooses without the test.
- *Tuned*: our own experiment (`{tuned}`), {tuned_head} head. Nothing is chosen on test data.

Below an error: the round it was taken after, over all seeds, and IMP. {imp}"""
IMP = {
    "battery": "IMP is the paper's measure: by how much the error of local training falls, as a share of it.",
    "turbofan": "IMP is the paper's measure: by how much FedMA's error is lower than that of the row's model, as a "
    "share of it. Raw errors compare with the true remaining life, capped errors with labels held at the cap, which no "
    "prediction exceeds.",
}
COMPARED = """\
Methods are compared at equal head. *Mean*: as trained and averaged. *Exact*: solved from the clients' sums in one
exchange. *Personal*: each client's own, near the exact one. Bold: the lowest error of its head. Bytes are all that
clients and coordinator sent each other up to the chosen round. For Central: the raw data that would be moved."""
PAIRED = """\
RMSE of FedMA minus that of the other method, seed by seed, with a 95 % t-interval. Below zero FedMA is better. Bold:
the interval leaves zero out. The intervals are not corrected for their number."""
COMMANDS = """\
```sh
make results                        # everything; an interrupted run goes on where it was
python -m studies run PRESET    # one preset into its JSON
python -m studies page          # these pages and their pictures from the JSON files, in seconds
```"""
Drawn = Mapping[str, Picture]


def tables_page(
    records: Mapping[str, Record],
    drawn: Drawn,
    remarks: Mapping[str, str],
) -> list[str]:
    """All parts of the page."""
    printed = paper()
    parts = ["# Tables behind the results", INTRODUCTION]
    parts += _experiment("battery", printed.battery, records, drawn)
    parts += _experiment("turbofan", printed.turbofan, records, drawn)
    parts += _further(records, remarks)
    parts.append(remarks.get("choices", ""))
    return [*parts, *_presets(records), *_made(records)]


def _experiment(kind: str, printed: PaperTable, records: Mapping[str, Record], drawn: Drawn) -> list[str]:
    """One experiment from its data to its comparisons."""
    rerun, tuned = records.get(f"{kind}-paper"), records.get(f"{kind}-tuned")
    if rerun is None and tuned is None:
        return []
    write = battery_table if kind == "battery" else turbofan_table
    parts = [TITLES[kind], *(shown(drawn, f"{kind}-{what}") for what in DATA_PICTURES[kind])]
    parts += ["### The paper's table", _how_to_read(kind, rerun, tuned), _sizes(printed, rerun)]
    parts.append(write(printed, rerun, tuned))
    for record in (rerun, tuned):
        if record is not None:
            parts += [shown(drawn, f"{record.preset}-{what}") for what in ("rounds", "predictions")]
    for record, title in ((tuned, "tuned"), (rerun, "the paper's protocol")):
        if record is not None:
            parts += [f"### Everything compared, {title}", *_compared(record)]
    first = rerun or tuned
    names = [] if first is None else [f"{first.preset}-extractors-{when}" for when in ("before", "after")]
    extractors = [text for name in names if (text := shown(drawn, name))]
    return [*parts, *(["### Feature extractors", *extractors] if extractors else [])]


def _further(records: Mapping[str, Record], remarks: Mapping[str, str]) -> list[str]:
    """Everything compared in presets that the paper has no counterpart of."""
    parts: list[str] = []
    for preset in ("battery-linear", *LIFE):
        if preset in records:
            parts += [f"### {records[preset].results.config['title']}", *_compared(records[preset])]
    return ["## Without a counterpart in the paper", *parts, remarks.get("epochs", "")] if parts else []


def _how_to_read(kind: str, rerun: Record | None, tuned: Record | None) -> str:
    heads = [NOTHING if record is None else comparisons(record)[0].main_head for record in (rerun, tuned)]
    return HOW_TO_READ.format(
        rerun=f"{kind}-paper", rerun_head=heads[0], tuned=f"{kind}-tuned", tuned_head=heads[1], imp=IMP[kind]
    )


def _sizes(printed: PaperTable, rerun: Record | None) -> str:
    """How large the re-run is beside the paper: where it is smaller, its errors are not the paper's to answer for."""
    if rerun is None:
        return ""
    config = rerun.results.config
    fedavg, fedma, train = config["federation"]["fedavg"], config["federation"]["fedma"], config["train"]
    epochs = printed.fedavg_epochs
    theirs = [
        str(printed.neurons),
        str(printed.local_epochs),
        *(str(printed.rounds), str(epochs) if isinstance(epochs, int) else "/".join(map(str, epochs.values()))),
        *(str(printed.rounds), str(printed.fedma_epochs)),
    ]
    ours = [
        ", ".join(map(str, config["model"]["widths"])),
        str(train["epochs"]),
        *(str(fedavg["rounds"]), str(fedavg["epochs"])),
        *(str(fedma["rounds"]), str(fedma["epochs"] or train["epochs"])),
    ]
    header = ["size", "LSTM neurons", "local epochs"]
    header += ["FedAvg rounds", "epochs a round", "FedMA rounds", "epochs a round"]
    return table(header, [["paper", *theirs], ["re-run", *ours]])


def _compared(record: Record) -> list[str]:
    """The first scenario open, further ones folded."""
    parts = [COMPARED]
    for k, compared in enumerate(comparisons(record)):
        paired = differences_table(compared)
        body = [comparison_table(compared), *([PAIRED, paired] if paired else [])]
        title = f"`{record.preset}`, {_clients(compared)}"
        parts += [f"{title}:", *body] if k == 0 else [folded(title, "\n\n".join(body))]
    return parts


def _clients(compared: Comparison) -> str:
    seeds = len({row.seed for row in compared.rows})
    return f"{compared.name}: {', '.join(compared.clients)}; {seeds} seed{'s' if seeds > 1 else ''}"


def _presets(records: Mapping[str, Record]) -> list[str]:
    """The options that matter, preset by preset."""
    header = [
        "preset",
        "input",
        "network",
        "local training",
        "FedAvg",
        "FedMA",
        "kept for validation",
        "heads",
        "seeds",
    ]
    return ["## The presets", table(header, [_options(record) for record in records.values()], len(header))]


def _options(record: Record) -> list[str]:
    config: Mapping[str, Any] = record.results.config
    recipe, model, train, federation = (config[name] for name in ("recipe", "model", "train", "federation"))
    fedavg, fedma = federation["fedavg"], federation["fedma"]
    if config["data"]["kind"] == "cmapss":
        scaling = "per operating condition" if recipe["conditions"] else "over all"
        source = f"window {recipe['window']}, every {recipe['stride']}, scaled {scaling}, cap {recipe['cap']:g}"
    elif recipe["cycle"] == "grid":
        source = f"{recipe['grid_points']} points over {recipe['grid_end_in_s']:g} s"
    else:
        source = "cut by sample index"
    entry = f"{model['input_width']} + " if model["input_width"] else ""
    stop = f", patience {train['patience']}" if train["patience"] else ""
    return [
        f"`{record.preset}`",
        source,
        f"{model['cell'].upper()} {entry}{', '.join(map(str, model['widths']))}",
        f"{train['epochs']} epochs{stop}",
        f"{fedavg['rounds']} × {fedavg['epochs']} epochs",
        f"{fedma['rounds']} × {fedma['epochs'] or train['epochs']} epochs",
        f"{100 * train['validation_fraction']:g} %",
        ", ".join(record.heads),
        str(config["evaluation"]["seeds"]),
    ]


def _made(records: Mapping[str, Record]) -> list[str]:
    """Commands and versions."""
    versions: dict[str, list[str]] = {}
    for record in records.values():
        text = ", ".join(f"{name} {number}" for name, number in sorted(record.versions.items()))
        text += f" on {record.finished}" if record.finished else ""
        versions.setdefault(text, []).append(f"`{record.preset}`")
    made_with = "; ".join(f"{', '.join(names)} with {text}" for text, names in versions.items())
    return ["## How it was made", COMMANDS, f"Runs: {made_with}."]
