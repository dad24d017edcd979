"""Whether running concatenated networks as blocks pays: J networks of 64 neurons, a whole matrix against blocks.

Times are seconds of one processor, the least of several taken in turns. The blocks are found once, as a predictor and
an evaluation do. Training never uses them: weights that are zero may change.
"""

from __future__ import annotations

from contextlib import nullcontext

import torch
from peers import in_turns

from fedprognos.networks import Network, NetworkSpec
from fedprognos.networks.module import HealthNetwork

NEURONS, INPUTS, ROWS, BATCH = 64, 20, 50, 128
REPEATS, ROUNDS = 2, 2


def concatenated(clients: int, cell: str) -> HealthNetwork:
    """Networks of several clients as the method `concat` makes them."""
    spec = NetworkSpec(inputs=INPUTS, widths=(NEURONS,), cell=cell)
    return Network.concat([Network.seeded(spec, seed) for seed in range(clients)]).module()


def main() -> None:
    torch.set_num_threads(1)
    print(f"{NEURONS} neurons a client, windows of {ROWS} rows, batches of {BATCH} or of one")
    print("| cell | J | whole, ms | blocks, ms | ratio | one window: whole | blocks | ratio |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    for cell in ("gru", "lstm"):
        for clients in (3, 10, 30):
            module = concatenated(clients, cell)
            many, one = torch.randn(BATCH, ROWS, INPUTS), torch.randn(1, ROWS, INPUTS)

            def run(inputs: torch.Tensor, module: HealthNetwork = module) -> None:
                with torch.no_grad():
                    module(inputs)

            works = {"many": lambda x=many, run=run: run(x), "one": lambda x=one, run=run: run(x)}
            found: dict[str, float] = {}
            for _ in range(ROUNDS):  # in turns, so that other programs disturb both alike
                for kind, blocks in (("whole", nullcontext()), ("blocks", module.in_blocks())):
                    with blocks:
                        for name, seconds in in_turns(works, REPEATS).items():
                            key = f"{name} {kind}"
                            found[key] = min(found.get(key, 1000 * seconds), 1000 * seconds)
            cells = [
                f"{found[f'{kind} whole']:.1f} | {found[f'{kind} blocks']:.1f} | "
                f"{found[f'{kind} whole'] / found[f'{kind} blocks']:.1f}"
                for kind in ("many", "one")
            ]
            print(f"| {cell.upper()} | {clients} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
