"""The midrange: halfway between the lowest and the highest client, whatever the others say."""

import numpy as np

import fedprognos as fp


def midrange(stack):
    """`stack.ordered` sorts the holders of each row and hands them over, holders first."""

    def middle(ordered, held):
        last = np.maximum(held - 1, 0)
        highest = np.take_along_axis(ordered, last[None, :, None], axis=0)[0]
        return (ordered[0] + highest) / 2

    return stack.ordered(middle)


MIDRANGE = fp.Aggregator("midrange", "midrange", 90, midrange)
