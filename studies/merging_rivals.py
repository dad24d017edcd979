"""Absorption beside other ways to merge the same trained networks, each as its paper has it, carried over to GRUs.

All see the networks of the same clients and, where they need them, sums of outputs over everybody's rows. All end with
the exact head. A way to merge is three things: which rows of the wide network make a neuron (P), how the neurons of the
wide network are told from those that are left (U and a constant), and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import squareform

from fedprognos.arrays import FloatArray, IntArray
from fedprognos.experiment import config
from fedprognos.experiment.scenario import scenarios
from fedprognos.federation.averages import average
from fedprognos.federation.cohort import MessageCohort
from fedprognos.federation.exchanges.evaluate import evaluate
from fedprognos.federation.plan import Plan
from fedprognos.matching import OutputSums
from fedprognos.networks import Network
from studies.cells import measure_missing, not_measured
from studies.markdown import difference, sample, table
from studies.samples import over_seeds, paired
from studies.study.bench import Bench, scope_of
from studies.study.measure import PRESET
from studies.study.parts import SideBySide, exact_only, seeing, side_by_side

SCENARIOS = ("lifespan-3", "random-3")
SEEDS = 3
WIDTHS = (1.0, 1.5)
"""Widths of the merged network, in multiples of a client's."""
REGMEAN_OFF_DIAGONAL = 0.9
"""RegMean shrinks what is off the diagonal of its sums by this factor."""
RIDGE = 1e-6
"""Of the mean variance, added where sums are inverted."""
PASSES = 10
"""Times that permutations are improved in turn; they settle earlier."""
RESULTS = Path("docs/results/merging-rivals.json")
RUNS = Path("build/merging-rivals")
PAGE = """\
# Absorption and other ways to merge

Three clients of C-MAPSS FD004, by lifespan or at random, train a GRU each (preset `study-clients`: 64 neurons, 300
steps, {seeds} seeds). These networks are merged in every way below, in one exchange, and every result has the exact
head. Errors are RMSE in cycles on the 228 test engines, labels capped at 130; ± is the standard deviation over seeds.
Differences are to keeping all neurons (concat), seed by seed, with 95 % intervals; bold: the interval leaves zero out.

- *Spectral Pruning's rule* (Furuya et al., 2022): the neurons that predict the outputs of all others best, one after
  another; weights that read a pruned neuron read its prediction. Head and gates have no part in the choice.
- *ZipIt's merging* (Stoica et al., 2024): neurons whose outputs correlate become one, their mean; here by average
  linkage. *With least squares*: what reads the merged neurons is fitted to sums.
- *Git Re-Basin* (Ainsworth et al., 2023): permutations by weights, then the average. *Permuted by outputs*: the same by
  correlation of outputs. After that, *PLeaS* (Nasery et al., 2024): neurons brought together become their mean, and
  what reads them is fitted by least squares; *RegMean* (Jin et al., 2023): the closed form from each client's sums.

`python -m studies merging-rivals` measures what is missing and makes this page."""


@dataclass(frozen=True)
class Cell:
    """One deal of engines and one draw of first weights."""

    scenario: str
    seed: int

    @property
    def key(self) -> str:
        return f"{self.scenario}, seed {self.seed}"


def cells() -> Iterator[Cell]:
    """One seed of each scenario first."""
    for seed in range(SEEDS):
        yield from (Cell(scenario, seed) for scenario in SCENARIOS)


def write_merging_rivals(data_dir: Path | None) -> Path:
    """Measure what is missing, and write the results and their page."""
    return measure_missing(RESULTS, cells(), lambda cell: measure(cell, data_dir), page)


def measure(cell: Cell, data_dir: Path | None) -> dict[str, float]:
    """The error of every way to merge."""
    _, experiment, _ = config.load(PRESET)
    rule = experiment.partition[cell.scenario].model_copy(update={"seed": cell.seed})
    dealt = scenarios(experiment.model_copy(update={"partition": {cell.scenario: rule}}), data_dir, Path())
    return errors(Bench(experiment, dealt[cell.scenario], cell.seed, RUNS, scope_of(dealt[cell.scenario])))


def errors(bench: Bench) -> dict[str, float]:
    """Error on the test engines by the name of the way and the width."""
    plan, bodies = exact_only(bench.plan()), bench.bodies()
    truth = bench.recipe.capped(bench.tests.labels)

    def error(network: Network) -> float:
        predictions = bench.predictions(bench.with_head(bench.cohort(), network, plan))
        return round(float(np.sqrt(np.mean((predictions - truth) ** 2))), 4)

    whole = side_by_side(bench.cohort(), plan, bodies)
    client_width = max(body.spec.hidden for body in bodies.values())
    measured = {f"concat, {whole.network.spec.hidden}": error(whole.network)}
    for width in (int(multiple * client_width) for multiple in WIDTHS):
        measured[f"absorb, {width}"] = error(whole.at(width))
        measured[f"Spectral Pruning's rule, {width}"] = error(spectrally_pruned(whole, width))
        measured[f"ZipIt's merging, {width}"] = error(zipped(whole, width, least_squares=False))
        measured[f"ZipIt's merging with least squares, {width}"] = error(zipped(whole, width, least_squares=True))
    names = sorted(bodies)
    networks = [bodies[name] for name in names]
    sizes = [float(bench.scenario.clients[name].rows) for name in names]
    by_weights = rebasin(networks, sizes)
    orders = orders_by_outputs(networks, whole.sums[-1], int(np.argmax(sizes)))
    by_outputs = [permuted(network, order) for network, order in zip(networks, orders, strict=True)]
    measured[f"average as they come, {client_width}"] = error(averaged(networks, sizes))
    measured[f"Git Re-Basin, {client_width}"] = error(averaged(by_weights, sizes))
    measured[f"permuted by outputs, {client_width}"] = error(averaged(by_outputs, sizes))
    measured[f"permuted by outputs, PLeaS, {client_width}"] = error(fitted_average(whole, orders, sizes))
    aligned = dict(zip(names, by_outputs, strict=True))
    measured[f"permuted by outputs, RegMean, {client_width}"] = error(regmean(bench.cohort(), plan, aligned))
    return measured


def spectrally_pruned(whole: SideBySide, width: int) -> Network:
    """Keep the neurons that together predict all outputs best, chosen one after another."""
    _, covariance = whole.sums[-1].moments(starts=True)
    residual, kept = covariance.copy(), list[int]()
    for _ in range(width):
        left = np.maximum(residual.diagonal(), 0.0)
        gain = np.where(left > RIDGE * covariance.trace() / len(left), (residual**2).sum(axis=0), 0.0)
        gain = np.divide(gain, left, out=np.zeros_like(left), where=left > 0)
        gain[kept] = -1.0
        best = int(np.argmax(gain))
        kept.append(best)
        if residual[best, best] > 0:
            residual -= np.outer(residual[:, best], residual[best]) / residual[best, best]
    rows = np.eye(len(covariance))[np.sort(kept)]
    return merged(whole, rows, *predicted_by(rows, whole.sums[-1]))


def zipped(whole: SideBySide, width: int, *, least_squares: bool) -> Network:
    """Neurons whose outputs correlate become one; the others read it in their place, or are fitted to it."""
    mean, covariance = whole.sums[-1].moments(starts=True)
    deviation = np.sqrt(np.maximum(covariance.diagonal(), 1e-300))
    distance = np.clip(1 - covariance / np.outer(deviation, deviation), 0.0, 2.0)
    distance = (distance + distance.T) / 2
    np.fill_diagonal(distance, 0.0)
    group = fcluster(linkage(squareform(distance, checks=False), "average"), width, "maxclust") - 1
    member = np.eye(group.max() + 1)[group]
    rows = member.T / member.sum(axis=0)[:, None]
    if least_squares:
        return merged(whole, rows, *predicted_by(rows, whole.sums[-1]))
    return merged(whole, rows, member, np.zeros(len(mean)))


def predicted_by(rows: FloatArray, sums: OutputSums) -> tuple[FloatArray, FloatArray]:
    """Least squares of all outputs on P h: the slopes (N, K), and the constants (N,)."""
    mean, covariance = sums.moments(starts=True)
    left = rows @ covariance @ rows.T
    left[np.diag_indices_from(left)] += RIDGE * covariance.trace() / len(covariance)
    slopes: FloatArray = np.asarray(np.linalg.solve(left, rows @ covariance).T, np.float64)
    return slopes, mean - slopes @ (rows @ mean)


def merged(whole: SideBySide, rows: FloatArray, slopes: FloatArray, constants: FloatArray) -> Network:
    """The network whose neurons are P times the wide one's, where h of the wide one is U h' plus a constant."""
    wide = whole.network
    (layer,) = wide.anatomy.layers[:-1]
    gates = {name: _by_gate(array, len(slopes)) for name, array in wide.layer(layer).items()}
    (ih, hh, b_ih, b_hh) = gates.values()
    arrays = (rows @ ih, rows @ hh @ slopes, b_ih @ rows.T, (b_hh + hh @ constants) @ rows.T)
    weights = {
        name: array.reshape(-1, *array.shape[2:]).astype(np.float32) for name, array in zip(gates, arrays, strict=True)
    }
    weights["head.weight"] = np.zeros((1, len(rows)), np.float32)
    weights["head.bias"] = wide.weights["head.bias"]
    return Network(wide.spec.with_widths({str(layer.group): len(rows)}), weights).check("merged")


def averaged(networks: list[Network], sizes: list[float]) -> Network:
    """Neuron k of one is neuron k of all."""
    spec = networks[0].spec
    tensors = {str(k): network.weights for k, network in enumerate(networks)}
    named_sizes = {str(k): size for k, size in enumerate(sizes)}
    return Network(spec, average(tensors, spec.anatomy, how="weighted", sizes=named_sizes))


def rebasin(networks: list[Network], sizes: list[float]) -> list[Network]:
    """Each network in turn permuted so that its weights are nearest to the mean of the others."""
    networks = list(networks)
    for _ in range(PASSES):
        moved = False
        for k in np.argsort(sizes, kind="stable"):
            others = [network for j, network in enumerate(networks) if j != k]
            mean = averaged(others, [size for j, size in enumerate(sizes) if j != k])
            order = _nearest_order(mean, networks[k])
            moved |= bool((order != np.arange(len(order))).any())
            networks[k] = permuted(networks[k], order)
        if not moved:
            break
    return networks


def _nearest_order(target: Network, network: Network) -> IntArray:
    """The order of a network's neurons with the largest inner product of all weights with the target's.

    Recurrent weights are permuted on both sides, so the assignment is solved again from each solution.
    """
    (layer,) = network.anatomy.layers[:-1]
    width = network.spec.hidden
    here, there = ([_by_gate(a, width) for a in n.layer(layer).values()] for n in (target, network))
    by_rows = np.einsum("gid,gjd->ij", here[0], there[0]) + sum(here[k].T @ there[k] for k in (2, 3))
    by_rows = by_rows + target.weights["head.weight"].T @ network.weights["head.weight"]
    order = np.arange(width)
    for step in range(PASSES):
        gain = by_rows
        if step:
            permutation = np.eye(width)[:, order].T  # row i of it takes neuron order[i]
            gain = by_rows + sum(
                r @ permutation @ s.T + r.T @ permutation @ s for r, s in zip(here[1], there[1], strict=True)
            )
        (_, better) = linear_sum_assignment(-gain)
        if step > 1 and (better == order).all():
            break
        order = better
    return order


def orders_by_outputs(networks: list[Network], sums: OutputSums, reference: int) -> list[IntArray]:
    """The order of each network's neurons in which its outputs correlate most with those of one network."""
    _, covariance = sums.moments(starts=True)
    deviation = np.sqrt(np.maximum(covariance.diagonal(), 1e-300))
    correlation = covariance / np.outer(deviation, deviation)
    blocks = _blocks([network.spec.hidden for network in networks])
    return [linear_sum_assignment(-correlation[np.ix_(blocks[reference], block)])[1] for block in blocks]


def fitted_average(whole: SideBySide, orders: list[IntArray], sizes: list[float]) -> Network:
    """Neurons that an order brings together become one, their weighted mean; what reads them is fitted to sums."""
    blocks = _blocks([len(order) for order in orders])
    everywhere = np.eye(whole.network.spec.hidden)
    aligned = [everywhere[block[order]] for block, order in zip(blocks, orders, strict=True)]
    rows = np.average(aligned, axis=0, weights=sizes)
    return merged(whole, rows, *predicted_by(rows, whole.sums[-1]))


def _blocks(widths: list[int]) -> list[IntArray]:
    """Where each network's neurons stand in the wide one."""
    return np.split(np.arange(sum(widths)), np.cumsum(widths)[:-1])


def permuted(network: Network, order: IntArray) -> Network:
    """The same network, its neurons in another order."""
    (layer,) = network.anatomy.layers[:-1]
    gates = {name: _by_gate(array, network.spec.hidden)[:, order] for name, array in network.layer(layer).items()}
    recurrent = list(gates)[1]
    gates[recurrent] = gates[recurrent][:, :, order]
    weights = {name: array.reshape(-1, *array.shape[2:]).astype(np.float32) for name, array in gates.items()}
    head = {"head.weight": network.weights["head.weight"][:, order]}
    return Network(network.spec, {**network.weights, **weights, **head})


def regmean(cohort: MessageCohort, plan: Plan, networks: Mapping[str, Network]) -> Network:
    """Each linear map fitted to all clients' maps at once, from the inner products of what each client's map reads."""
    left = {"x": 0.0, "h": 0.0}
    right: dict[str, FloatArray | float] = {"x": 0.0, "h": 0.0}
    first = next(iter(networks.values()))
    (layer,) = first.anatomy.layers[:-1]
    for name, network in networks.items():
        hh = evaluate(cohort, plan, [name], seeing(network, {"direct": 1})).head_statistics[0].hh
        hidden = network.spec.hidden
        reads = {"x": np.arange(hidden, len(hh)), "h": np.append(np.arange(hidden), len(hh) - 1)}
        ih, rr, b_ih, b_hh = network.layer(layer).values()
        maps = {"x": np.column_stack([ih, b_ih]), "h": np.column_stack([rr, b_hh])}
        for which, columns in reads.items():
            products = hh[np.ix_(columns, columns)]
            products = REGMEAN_OFF_DIAGONAL * products + (1 - REGMEAN_OFF_DIAGONAL) * np.diag(products.diagonal())
            left[which] = left[which] + products
            right[which] = right[which] + maps[which] @ products
    solved = {which: np.linalg.solve(np.asarray(left[which]), np.asarray(right[which]).T).T for which in left}
    arrays = (solved["x"][:, :-1], solved["h"][:, :-1], solved["x"][:, -1], solved["h"][:, -1])
    weights = {n: a.astype(np.float32) for n, a in zip(first.layer(layer), arrays, strict=True)}
    return Network(first.spec, {**first.weights, **weights}).check("merged")


def _by_gate(array: ArrayLike, width: int) -> FloatArray:
    """One block of rows for each gate: (gates, width, ...)."""
    return np.asarray(array, np.float64).reshape(-1, width, *np.shape(array)[1:])


def page(results: Mapping[str, Mapping[str, float]]) -> str:
    """A table a scenario; what is missing is named."""
    parts = [PAGE.format(seeds=SEEDS)]
    for scenario in SCENARIOS:
        cell, rows, concat = Cell(scenario, 0), [], None
        for way in results.get(cell.key, {}):
            name, _, width = way.rpartition(", ")
            errors = over_seeds(results, cell, SEEDS, way)
            concat = errors if concat is None else concat
            against = "" if errors is concat else difference(paired(errors, concat), 2)
            rows.append([name, width, sample(errors, 2), against])
        if rows:
            parts += [f"## {scenario}", table(["way to merge", "neurons", "error", "against concat"], rows)]
    return "\n\n".join([*parts, *not_measured((cell.key for cell in cells()), results)]) + "\n"
