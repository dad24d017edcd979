"""The parts of the page: an experiment, accuracy against width, settings, how it was made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.lines import HEADS, Setting, settings
from experiments.markdown import NOTHING, folded, table
from experiments.paper import PaperTable
from experiments.pictures import Picture
from experiments.record import Record
from experiments.tables_comparison import comparison_table, differences_table, width_table
from experiments.tables_paper import battery_table, main_head, turbofan_table

TITLES = {
    "battery": "## Batteries: capacity of B0006, B0007, B0018",
    "turbofan": "## Turbofan engines: remaining life, C-MAPSS FD004",
}
DATA_PICTURES = {"battery": ("signals", "fade"), "turbofan": ("lifespans", "targets")}
HOW_TO_READ = """\
*Paper*: as printed there. *Re-run*: its protocol with our program (`{rerun}`), the {rerun_head} head; once with the
round that does best on the test data, chosen for each test and seed as the paper does, which nobody can do who does not
know the answers, and once chosen without them. *Tuned*: ours (`{tuned}`), the {tuned_head} head, nothing chosen on test
data. Below an error stand the round it was taken after, over all seeds, and IMP: {imp}"""
IMP = {
    "battery": "as in the paper, how much the error of training alone falls, as a share of it.",
    "turbofan": "as in the paper, how much lower FedMA's error is than that of the row's model, as a share of it. "
    "Capped errors compare with labels held at the cap, raw ones with the true remaining life, which no capped "
    "prediction can reach.",
}
COMPARED = """\
At equal head: *mean* as trained and averaged, *exact* solved from the clients' sums in one exchange, *personal* each
client's own near the exact one. Bold: the lowest of its head. Bytes are all that clients and coordinator sent each
other up to the round; for Central, the raw data that would have to be moved."""
PAIRED = """\
RMSE of FedMA minus that of the other, seed by seed, with a 95 % t-interval: below zero FedMA is better. Bold where the
interval leaves zero out; the intervals are not corrected for their number."""


def experiment_part(
    kind: str, printed: PaperTable, records: Mapping[str, Record], drawn: Mapping[str, Picture]
) -> list[str]:
    """One experiment from its data to its comparisons."""
    rerun, tuned = records.get(f"{kind}-paper"), records.get(f"{kind}-tuned")
    if rerun is None and tuned is None:
        return []
    write = battery_table if kind == "battery" else turbofan_table
    parts = [TITLES[kind], *(shown(drawn, f"{kind}-{what}") for what in DATA_PICTURES[kind])]
    parts += [
        "### The paper's table",
        _how_to_read(kind, rerun, tuned),
        _sizes(printed, rerun),
        write(printed, rerun, tuned),
    ]
    for record in (rerun, tuned):
        if record is not None:
            parts += [shown(drawn, f"{record.preset}-{what}") for what in ("rounds", "predictions")]
    for record, title in ((tuned, "tuned"), (rerun, "the paper's protocol")):
        if record is not None:
            parts += [f"### Everything compared, {title}", *_comparisons(record)]
    extractors = [
        shown(drawn, f"{record.preset}-extractors-{when}")
        for record in (rerun or tuned,)
        for when in ("before", "after")
        if record is not None
    ]
    return [*parts, *(["### Feature extractors", *extractors] if any(extractors) else [])]


def _how_to_read(kind: str, rerun: Record | None, tuned: Record | None) -> str:
    def head(record: Record | None) -> str:
        return NOTHING if record is None else main_head(record, settings(record)[0])

    return HOW_TO_READ.format(
        rerun=f"{kind}-paper", rerun_head=head(rerun), tuned=f"{kind}-tuned", tuned_head=head(tuned), imp=IMP[kind]
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
    header = [
        "size",
        "LSTM neurons",
        "local epochs",
        "FedAvg rounds",
        "epochs a round",
        "FedMA rounds",
        "epochs a round",
    ]
    return table(header, [["paper", *theirs], ["re-run", *ours]])


def _comparisons(record: Record) -> list[str]:
    """The first setting open, further ones folded."""
    parts = [COMPARED]
    for k, setting in enumerate(settings(record)):
        paired = differences_table(setting)
        body = [comparison_table(setting), *([PAIRED, paired] if paired else [])]
        title = f"`{record.preset}`, {_clients(setting)}"
        parts += [f"{title}:", *body] if k == 0 else [folded(title, "\n\n".join(body))]
    return parts


def _clients(setting: Setting) -> str:
    seeds = len({row.seed for row in setting.rows})
    return f"{setting.name}: {', '.join(setting.clients)}; {seeds} seed{'s' if seeds > 1 else ''}"


def width_part(records: Mapping[str, Record], drawn: Mapping[str, Picture]) -> list[str]:
    """Accuracy against width, over all presets but those of the paper's protocol."""
    parts: list[str] = []
    for kind in TITLES:
        tuned = records.get(f"{kind}-tuned")
        if tuned is None:
            continue
        others = [r for name, r in records.items() if name.startswith(kind) and not name.endswith("-paper")]
        tables = []
        for setting in settings(tuned)[: 1 if kind == "battery" else None]:
            found = [(r.preset, s) for r in others for s in settings(r) if s.name == setting.name]
            text = width_table(found, HEADS[1])
            tables += [f"{kind}, {setting.name}:", text] if text else []
        parts += [*([shown(drawn, f"{kind}-widths")] if tables else []), *tables]
    return ["## Accuracy against width, exact head", *parts] if parts else []


def facts_part(records: Mapping[str, Record]) -> list[str]:
    """The settings that matter, preset by preset."""
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
    rows = [_facts(record) for record in records.values()]
    return ["## Settings", table(header, rows, len(header))]


def _facts(record: Record) -> list[str]:
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


def made_part(records: Mapping[str, Record]) -> list[str]:
    """Commands and versions."""
    versions: dict[str, list[str]] = {}
    for record in records.values():
        text = ", ".join(f"{name} {number}" for name, number in sorted(record.versions.items()))
        versions.setdefault(text, []).append(f"`{record.preset}`")
    made = "; ".join(f"{', '.join(names)} with {text}" for text, names in versions.items())
    commands = (
        "```sh\nmake results                        # everything; what was interrupted goes on\n"
        "python -m experiments run PRESET    # one preset into its JSON\n"
        "python -m experiments choices       # what the tuned engine experiment was chosen from\n"
        "python -m experiments ridge         # the batteries' ridge strength, from training cycles\n"
        "python -m experiments page          # this page and its pictures from the JSON files, seconds\n```"
    )
    return ["## How it was made", commands, f"Made by {made}."]


def shown(drawn: Mapping[str, Picture], name: str) -> str:
    """A picture with its caption, or nothing where there is none."""
    found = drawn.get(name)
    return "" if found is None else f"![{found.title}](results/{found.name}.svg)\n\n*{found.title}.* {found.caption}"
