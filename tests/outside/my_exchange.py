"""End of life: how many of a client's windows are near the end of life, say for a plan of spare parts."""

from dataclasses import dataclass

import fedprognos as fp
from fedprognos.errors import MessageError
from fedprognos.features import Recipe


@dataclass(frozen=True)
class EndOfLifeRequest:
    """Count your windows whose remaining life is below so many cycles."""

    recipe: Recipe
    below_in_cycles: float


@dataclass(frozen=True)
class EndOfLifeReply:
    """All windows, and the worn ones."""

    windows: int
    worn: int


def answer(client, request, on_epoch):
    """Counts; the client's floors decide whether there are enough windows to say anything."""
    windows = client.windows(request.recipe)
    client.floors.check(windows)
    return EndOfLifeReply(len(windows), int((windows.labels < request.below_in_cycles).sum()))


def cost(request, fleet):
    """Bytes and operations, from sizes alone."""
    return 8.0 * fleet.rows * request.recipe.window, 10.0 * fleet.rows


def check(request, reply, most_points):
    """A part is not larger than the whole."""
    if not 0 <= reply.worn <= reply.windows <= most_points:
        raise MessageError(f"sent {reply.worn} worn windows of {reply.windows}")


END_OF_LIFE = fp.Exchange(
    EndOfLifeRequest,
    EndOfLifeReply,
    300,
    fp.Words("counting worn windows", "how many windows are near the end of life", "how worn the fleet is"),
    answer,
    cost,
    check,
    template=lambda request: EndOfLifeReply(0, 0),
    only_masked=True,
)
