"""How an experiment file is put together: what it builds on, its sizes, its settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fedprognos.errors import ConfigError
from fedprognos.experiment import config
from fedprognos.experiment.scenario import scenarios
from fedprognos.networks.cells import cells
from refusals import refuses


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text, "utf-8")
    return path


SIZES = """
base = "plants"
scale = "small"

[train]
batch_size = 64

[scales.small.train]
epochs = 2

[scales.full.train]
epochs = 200

[scales.full.model]
widths = [256]
"""


def test_a_file_may_build_on_a_preset(tmp_path: Path) -> None:
    _, demo, _ = config.load("plants")
    _, mine, _ = config.load(written(tmp_path, 'base = "plants"\ntitle = "mine"\n[train]\nepochs = 3\n'))
    assert mine.train == demo.train.model_copy(update={"epochs": 3})
    assert mine.title == "mine"
    assert (mine.data, mine.recipe, mine.federation) == (demo.data, demo.recipe, demo.federation)


def test_partitions_are_taken_as_a_whole(tmp_path: Path) -> None:
    _, mine, _ = config.load(written(tmp_path, 'base = "plants"\n[partition]\nby = "random"\nclients = 2\n'))
    assert list(mine.partition) == ["all"]
    assert mine.dump()["partition"]["all"] == {
        **dict.fromkeys(["edges", "column", "alpha", "decimals", "units"]),
        **{"by": "random", "clients": 2, "seed": 0},
    }


def test_an_experiment_has_sizes(tmp_path: Path) -> None:
    file = written(tmp_path, SIZES)
    _, small, _ = config.load(file)
    _, full, _ = config.load(file, ["scale=full", "train.batch_size=8"])
    assert (small.scale, small.train.epochs, small.train.batch_size) == ("small", 2, 64)
    assert (full.scale, full.train.epochs, full.train.batch_size, full.model.widths) == ("full", 200, 8, (256,))


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ('base = "turbofn"', ("turbofn",)),
        ('base = "plants"\nscale = "huge"\n[scales.full.train]\nepochs = 9', ("'huge'", "full")),
        ('base = "plants"\nscales = 3', ("scales",)),
        ('base = "plants"\n[scales.full.train]\nepoch = 9\n[train]\nepoch = 3', ("train.epoch",)),
    ],
)
def test_what_cannot_be_built_on_is_refused(text: str, values: tuple[str, ...], tmp_path: Path) -> None:
    with refuses(ConfigError, *values):
        config.load(written(tmp_path, text))


@pytest.mark.parametrize(
    ("override", "values"),
    [
        ("model.cell=lstmm", ("model.cell", "'lstmm'", "'lstm'", "gru, lstm")),
        (
            "federation.fedma.average=men",
            ("fedma.average", "'men'", "'mean'", "weighted"),
        ),
        (
            "federation.methods=['fedav']",
            ("federation.methods", "'fedav'", "'fedavg'"),
        ),
        (
            "evaluation.baselines=['rige']",
            ("evaluation.baselines.0", "'rige'", "'ridge'"),
        ),
        ("recipe.channels={meen=3}", ("recipe", "'meen'", "'mean'")),
        ("recipe.history=lifes", ("recipe", "'lifes'", "'life'")),
    ],
)
def test_an_unknown_name_is_refused_with_its_key_and_the_nearest(override: str, values: tuple[str, ...]) -> None:
    with refuses(ConfigError, "demo", *values):
        config.load("demo", overrides=(override,))


def test_data_in_place_of_an_experiment_is_sent_to_init(tmp_path: Path) -> None:
    (tmp_path / "fleet.csv").write_text("unit,cycle\n")
    for source in (tmp_path / "fleet.csv", tmp_path):
        with refuses(ConfigError, f"fedprognos init {source}"):
            config.load(source)


def test_a_word_in_place_of_a_list_is_shown_as_a_list() -> None:
    with refuses(ConfigError, "federation.methods", "['fedavg']"):
        config.load("demo", overrides=("federation.methods=fedavg",))


def test_a_misspelt_word_in_place_of_a_list_suggests_the_nearest_name() -> None:
    with refuses(ConfigError, "federation.methods", "'fedavgg'", "'fedavg'"):
        config.load("demo", overrides=("federation.methods=fedavgg",))


def test_privacy_covers_training_of_cells_that_bound_gradients() -> None:
    private = ("federation.privacy={epsilon=5.0}", "train.validation_fraction=0", "model.cell=bare")
    with cells.including([replace(cells["gru"], name="bare", recurrent_factor=None)]):
        with refuses(ConfigError, "model.cell = 'bare'", "lstm, gru"):
            config.load("demo", overrides=(*private, "federation.methods=['fedavg']"))
        config.load("demo", overrides=(*private, "federation.methods=['direct']"))


def test_a_setting_may_take_some_units_only() -> None:
    _, demo, folder = config.load("plants-battery")
    everyone = scenarios(demo, None, folder)["all"]
    a, b = sorted(u for fleet in everyone.clients.values() for u in fleet.ids)[:2]
    some = [f'partition={{pair={{by="unit", units=["{b}", "{a}"]}}, all={{by="column", column="site"}}}}']
    _, experiment, folder = config.load("plants-battery", some)
    found = scenarios(experiment, None, folder)
    assert list(found["pair"].clients) == [a, b]
    assert found["all"].clients.keys() == everyone.clients.keys()
    _, experiment, folder = config.load("plants-battery", [some[0].replace(b, "nobody")])
    with refuses(ConfigError, "'nobody'"):
        scenarios(experiment, None, folder)


def test_a_written_experiment_finds_its_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, runs = tmp_path / "plant", tmp_path / "disk" / "of" / "runs"
    for folder in (plant, runs):
        folder.mkdir(parents=True)
    (plant / "fleet.csv").touch()
    (plant / "runs").symlink_to(runs)
    data = '[data]\nkind = "table"\npath = "fleet.csv"\nunit = "pump"\ntime = "hour"\n'
    (plant / "fleet.toml").write_text(f'{data}[partition]\nby = "column"\ncolumn = "site"\n')
    _, experiment, base = config.load(plant / "fleet.toml")

    def written_data() -> Path:
        config.write(plant / "runs" / "chosen.toml", experiment, [], base)
        _, again, place = config.load(plant / "runs" / "chosen.toml")
        return place / again.dump()["data"]["path"]

    assert written_data().samefile(plant / "fleet.csv")

    def other_drive(path: object, start: object) -> str:
        raise ValueError("path is on mount 'C:', start on mount 'D:'")

    monkeypatch.setattr("os.path.relpath", other_drive)
    assert written_data().samefile(plant / "fleet.csv")
